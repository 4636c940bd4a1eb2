// The kernels that device_code.cpp puts on a GPU's stream. Streams are cudaStream_t, and pointers are to GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace paceline::compress::gpu {

/// A block of consecutive values in a part: for int8 and dynamic8 the values that share a scale, for the others those that
/// tensor_statistics.cpp adds as floats.
struct Unit {
  std::int64_t at, count;  // elements, from the range's beginning
  std::int64_t code;       // of int8 and dynamic8: byte of its code
  std::int64_t part;
};

struct PartOnGpu {
  std::int64_t offset, count;  // elements
  std::int64_t code;           // byte of its code
  std::int64_t first_unit, units;
};

struct Tables {
  const Unit* units = nullptr;
  const PartOnGpu* parts = nullptr;
  std::int64_t unit_count = 0, part_count = 0;
};

/// Draws of a range (draws.h).
struct Chance {
  std::uint32_t start, key;
};

/// The tables of dynamic8: the value of a byte, and the byte for the first bits of a float; null for int8.
struct Levels {
  const float* levels = nullptr;
  const std::uint8_t* codes = nullptr;
  std::uint32_t first = 0, keys = 0, dropped = 0;
};

void encode_blocks(const Tables& tables, const Levels& levels, Chance chance, float* values, std::byte* code, void* stream);
void decode_blocks(const Tables& tables, const Levels& levels, const std::byte* code, float weight, float* sum, void* stream);

enum class Flags { onebit, sign, ternary };
struct FlagSettings {
  Flags kind;
  double sign_scale, clip_deviations;
};

/// What a unit adds to the statistics of its part: even and odd lanes separately.
struct UnitSums {
  double positive[2], negative[2], squares[2];
  std::int32_t negatives;
  std::uint32_t largest;
};
/// The values of a part's flags; if `plain` is not set, no flag is.
struct PartWorth {
  float positive, negative;
  std::int32_t plain;
};

/// `sums`: room for one per unit; `worths`: for one per part.
void encode_flags(const Tables& tables, const FlagSettings& settings, Chance chance, float* values, std::byte* code, UnitSums* sums,
                  PartWorth* worths, void* stream);
void decode_flags(const Tables& tables, Flags kind, const std::byte* code, float weight, float* sum, void* stream);

/// Memory on this thread's GPU with a copy of these bytes, or with arbitrary content if `from` is null. ConfigError if none is left.
std::shared_ptr<void> allocate(std::size_t bytes, const void* from = nullptr);
/// Copies on the stream, from and to memory of a GPU or of the host.
void copy(void* to, const void* from, std::size_t bytes, void* stream);
/// Waits until the stream is done.
void wait(void* stream);

}  // namespace paceline::compress::gpu
