// The gradient of an embedding's table. The first block of a token adds all of its rows, with several loads in flight, and the others have
// nothing to do: no atomics, so that results repeat bit for bit.
#include <cuda_runtime.h>

#include <string>

#include "paceline/base/error.h"
#include "paceline/nn/norm_rows.cuh"
#include "paceline/nn/rows_cuda.h"

namespace paceline::nn {
namespace {

constexpr int kTableThreads = 128, kRowsOnTheirWay = 8;

template <class T>
__global__ void __launch_bounds__(kTableThreads)
    table_sums(const T* values, const int* tokens, const std::int64_t* order, std::int64_t rows, int columns, float* table) {
  const std::int64_t first = blockIdx.x;
  const int token = tokens[first];
  if (token < 0 || (first > 0 && tokens[first - 1] == token)) return;
  for (int column = static_cast<int>(threadIdx.x) * kVector; column < columns; column += kTableThreads * kVector) {
    Eight sum{};
    bool more = true;
    for (std::int64_t i = first; more; i += kRowsOnTheirWay) {
      Packed<T> asked[kRowsOnTheirWay];
      bool has[kRowsOnTheirWay];
#pragma unroll
      for (int k = 0; k < kRowsOnTheirWay; ++k) {
        has[k] = i + k < rows && tokens[i + k] == token;
        if (!has[k]) continue;
        const uint4* words = reinterpret_cast<const uint4*>(values + order[i + k] * columns + column);
#pragma unroll
        for (unsigned w = 0; w < sizeof(asked[k].words) / sizeof(uint4); ++w) asked[k].words[w] = words[w];
      }
#pragma unroll
      for (int k = 0; k < kRowsOnTheirWay; ++k) {
        if (!has[k]) continue;
        const Eight value = unpack(asked[k]);
#pragma unroll
        for (int v = 0; v < kVector; ++v) sum.v[v] += value.v[v];
      }
      more = has[kRowsOnTheirWay - 1];
    }
    float* place = table + static_cast<std::int64_t>(token) * columns + column;
    const Eight before = load(place);
#pragma unroll
    for (int v = 0; v < kVector; ++v) sum.v[v] += before.v[v];
    store(place, sum);
  }
}

}  // namespace

void launch_table_sums(const RowsShape& shape, const void* values, const int* tokens, const std::int64_t* order, float* table,
                       void* stream) {
  const auto blocks = static_cast<unsigned>(shape.rows);
  const auto where = static_cast<cudaStream_t>(stream);
  if (shape.bf16)
    table_sums<<<blocks, kTableThreads, 0, where>>>(static_cast<const __nv_bfloat16*>(values), tokens, order, shape.rows, shape.columns,
                                                    table);
  else table_sums<<<blocks, kTableThreads, 0, where>>>(static_cast<const float*>(values), tokens, order, shape.rows, shape.columns, table);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(std::string("CUDA: the gradient of an embedding failed: ") + cudaGetErrorString(status));
}

}  // namespace paceline::nn
