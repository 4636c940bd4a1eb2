// What the kernels of several compressors need. Only .cu files include it.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "paceline/base/error.h"
#include "paceline/compress/device_kernels.h"

namespace paceline::compress::gpu {

inline constexpr std::uint32_t kMagnitudeBits = 0x7fffffffu, kInfinityBits = 0x7f800000u, kNanBits = 0x7fc00000u, kSignBit = 0x80000000u;
inline constexpr std::uint32_t kWeyl = 0x9e3779b1u;
inline constexpr int kThreads = 256, kMostBlocks = 1 << 16;

inline void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw Error(std::string("cuda: ") + what + ": " + cudaGetErrorString(result));
}

inline unsigned blocks_for(std::int64_t units, std::int64_t most = kMostBlocks) { return static_cast<unsigned>(std::min(units, most)); }

/// Draws::word of draws.h.
__device__ inline std::uint32_t word(Chance chance, std::uint32_t index) {
  std::uint32_t x = chance.start + index * kWeyl;
  x = (x ^ (x >> 15)) * 0x85ebca77u;
  x = (x ^ chance.key ^ (x >> 13)) * 0xc2b2ae3du;
  return x ^ (x >> 16);
}

}  // namespace paceline::compress::gpu
