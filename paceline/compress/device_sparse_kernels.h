// The kernels of topk, dgc and threshold. Streams are cudaStream_t, and pointers are to GPU memory.
#pragma once

#include "paceline/compress/device_kernels.h"

namespace paceline::compress::gpu {

/// Which values are sent, ascending by index: those whose magnitude, as bits, is above `least`, and the first `equal` ones where it is
/// `least`.
struct Choice {
  std::uint32_t least, fixed;  // `fixed`: the bits of `least` that are known so far
  std::int64_t equal;
};

/// Values of the units before this one, or of all units.
struct HitsBefore {
  std::int64_t above, equal;
};

/// Working memory of one encoder.
struct SparseMemory {
  Choice* choice;
  std::int64_t* counts;  // kDigits
  HitsBefore* before;    // one for each unit, and the total
  static constexpr int kDigits = 1 << 11;
};

/// The k values of the largest magnitude, 1 ≤ k ≤ values of the parts; they become 0. Code: k indices, then k values.
void encode_top(const Tables& tables, const SparseMemory& memory, std::int64_t k, float* values, std::byte* code, void* stream);
void decode_top(const std::byte* code, std::int64_t k, float weight, float* sum, void* stream);

/// ±threshold for every value beyond it. Code: the threshold, and a word for each value; returns the number of values, for which it waits.
std::int64_t encode_threshold(const Tables& tables, const SparseMemory& memory, float threshold, float* values, std::byte* code,
                              void* stream);
void decode_threshold(const std::byte* code, std::int64_t count, float weight, float* sum, void* stream);

}  // namespace paceline::compress::gpu
