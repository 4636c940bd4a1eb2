// How the kernels of norm.cu read and write a matrix of rows × channels: a thread's eight channels, its walk over the rows, and fetches of
// several rows at once.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace paceline::nn {

constexpr int kVector = 8;
constexpr int kMostLanes = 8;

struct Eight {
  float v[kVector];
};

/// Eight values as they lie in memory.
template <class T>
struct Packed {
  uint4 words[kVector * sizeof(T) / sizeof(uint4)];
};

inline __device__ Eight unpack(const Packed<__nv_bfloat16>& packed) {
  const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(packed.words);
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    out.v[2 * i] = pair.x, out.v[2 * i + 1] = pair.y;
  }
  return out;
}

inline __device__ Eight unpack(const Packed<float>& packed) {
  Eight out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) out.v[i] = reinterpret_cast<const float*>(packed.words)[i];
  return out;
}

inline __device__ Eight load(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

inline __device__ void store(__nv_bfloat16* to, const Eight& values) {
  uint4 raw;
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(values.v[2 * i], values.v[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = raw;
}

inline __device__ void store(float* to, const Eight& v) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v.v[4], v.v[5], v.v[6], v.v[7]);
}

/// Threads side by side: a power of two, so that a warp holds whole rows.
__host__ __device__ constexpr int lanes_for(int channels) {
  const int vectors = channels / kVector;
  return vectors > 4 ? kMostLanes : vectors > 2 ? 4 : vectors;
}

enum class Order { down, up };

/// The position of a thread: its first row, the distance to its next one, and where they are in memory.
struct Walk {
  int lanes, channel;
  std::int64_t rows, row, step;

  __device__ Walk(std::int64_t all_rows, int channels, Order order) : lanes(lanes_for(channels)), rows(all_rows) {
    const int thread = static_cast<int>(threadIdx.x), rows_a_block = static_cast<int>(blockDim.x) / lanes;
    channel = (static_cast<int>(blockIdx.y) * lanes + thread % lanes) * kVector;
    row = static_cast<std::int64_t>(blockIdx.x) * rows_a_block + thread / lanes;
    step = static_cast<std::int64_t>(gridDim.x) * rows_a_block;
    if (channel >= channels) channel = 0, row = rows;  // right of the last channel: constants to read, but no rows
    pitch_ = order == Order::down ? channels : -channels;
    first_ = order == Order::down ? channel : (rows - 1) * channels + channel;
    stride_ = step * pitch_;
  }
  /// For the rows `start`, `start` + step, …: whether there is an i-th, and its offset.
  __device__ bool has(std::int64_t start, int i) const { return start + i * step < rows; }
  __device__ std::int64_t at(std::int64_t start, int i) const { return first_ + start * pitch_ + i * stride_; }

 private:
  std::int64_t first_, pitch_, stride_;
};

enum class Cache { keep, pass };  // pass: it is not read again soon, so it should not displace what is needed

/// Loads kRows rows starting at `row`; zeros past the last.
template <Cache kCache, class T, int kRows>
__device__ void fetch(Packed<T> (&to)[kRows], const void* from, const Walk& walk, std::int64_t row) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    to[i] = {};
    if (!walk.has(row, i)) continue;
    const uint4* words = reinterpret_cast<const uint4*>(static_cast<const T*>(from) + walk.at(row, i));
#pragma unroll
    for (unsigned w = 0; w < sizeof(to[i].words) / sizeof(uint4); ++w)
      to[i].words[w] = kCache == Cache::keep ? words[w] : __ldcs(words + w);
  }
}

}  // namespace paceline::nn
