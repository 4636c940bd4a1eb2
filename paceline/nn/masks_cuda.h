// The kernel behind masks.h. No CUDA header here: a stream is the void* behind cudaStream_t.
#pragma once

#include <cstdint>

namespace paceline::nn {

enum class MaskType : std::uint8_t { fp32, fp64, fp16, bf16 };

/// Elements [first, first + count) of the middle one of three dimensions, of which the whole has outer × all × inner elements.
struct MaskShape {
  std::int64_t outer = 1, all = 1, inner = 1, first = 0, count = 1;
};

/// `place`: the index of the whole tensor's first element among the draws of this seed. `step`: in device memory.
void launch_mask(MaskType type, void* mask, const MaskShape& shape, std::uint64_t seed, const std::int64_t* step, std::uint64_t place,
                 double keep, void* stream);

}  // namespace paceline::nn
