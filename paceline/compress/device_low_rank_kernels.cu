// Every sum has the order of low_rank.cpp, so the bits are those of the CPU: rows times Q in four lanes, columns times P from the first row
// to the last, projections in four lanes of double.
#include <type_traits>

#include "paceline/compress/device_launch.cuh"
#include "paceline/compress/device_low_rank_kernels.h"

namespace paceline::compress::gpu {
namespace {

constexpr int kLanes = 4;
constexpr std::int64_t kMostRank = 8;  // columns of a factor that a thread keeps in registers; more take several passes
constexpr int kStaged = 128;           // rows of P that a block keeps in shared memory
constexpr int kProducts = 1024;        // of a projection, in shared memory
constexpr double kDependent = 1e-5;    // as in orthonormalise() of low_rank.cpp

/// Calls body(first column of the pass, its number of columns as a constant).
template <class Body>
__device__ void in_passes(std::int64_t rank, const Body& body) {
  for (std::int64_t first = 0; first < rank; first += kMostRank) {
    switch (min(kMostRank, rank - first)) {
      case 1: body(first, std::integral_constant<int, 1>()); break;
      case 2: body(first, std::integral_constant<int, 2>()); break;
      case 3: body(first, std::integral_constant<int, 3>()); break;
      case 4: body(first, std::integral_constant<int, 4>()); break;
      case 5: body(first, std::integral_constant<int, 5>()); break;
      case 6: body(first, std::integral_constant<int, 6>()); break;
      case 7: body(first, std::integral_constant<int, 7>()); break;
      default: body(first, std::integral_constant<int, 8>()); break;
    }
  }
}

__global__ void gather_kernel(LowRankTables tables, const float* values, float* sent) {
  const RunOnGpu run = tables.runs[blockIdx.x];
  if (run.sent < 0) return;
  for (std::int64_t i = threadIdx.x; i < run.count; i += kThreads) sent[run.sent + i] = values[run.offset + i];
}

__global__ void scatter_kernel(LowRankTables tables, const float* sent, float* values, float* mean) {
  const RunOnGpu run = tables.runs[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < run.count; i += kThreads) {
    mean[run.offset + i] = run.sent < 0 ? 0.0f : sent[run.sent + i];
    if (run.sent >= 0) values[run.offset + i] = 0;
  }
}

/// Four threads per row, one per lane.
__global__ void __launch_bounds__(kTileRows* kLanes)
    multiply_kernel(LowRankTables tables, const float* __restrict__ values, const float* __restrict__ factors, float* p) {
  const Tile tile = tables.rows[blockIdx.x];
  const MatrixOnGpu matrix = tables.matrices[tile.matrix];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t row = tile.begin + threadIdx.x / kLanes;
  const bool there = row < matrix.rows;  // all threads of a warp meet in the shuffles
  const float* const m = values + matrix.offset + (there ? row : tile.begin) * matrix.columns;
  in_passes(matrix.rank, [&](std::int64_t first, auto constant) {
    constexpr int rank = decltype(constant)::value;
    const float* const q = factors + matrix.q + first * matrix.columns;
    float sums[rank] = {};
#pragma unroll 8
    for (std::int64_t j = lane; j < matrix.columns; j += kLanes) {
      const float value = m[j];
#pragma unroll
      for (int r = 0; r < rank; ++r) sums[r] = __fadd_rn(sums[r], __fmul_rn(value, q[r * matrix.columns + j]));
    }
#pragma unroll
    for (int r = 0; r < rank; ++r) {
      double sum = 0;
      for (int k = 0; k < kLanes; ++k) sum += static_cast<double>(__shfl_sync(0xffffffffu, sums[r], k, kLanes));
      if (there && lane == 0) p[matrix.p + (first + r) * matrix.rows + row] = static_cast<float>(sum);
    }
  });
}

/// A thread per column.
__global__ void __launch_bounds__(kTileColumns)
    multiply_transposed_kernel(LowRankTables tables, const float* __restrict__ values, const float* __restrict__ factors, float* q) {
  __shared__ float staged[kMostRank * kStaged];
  const Tile tile = tables.columns[blockIdx.x];
  const MatrixOnGpu matrix = tables.matrices[tile.matrix];
  const std::int64_t column = tile.begin + threadIdx.x;
  const bool there = column < matrix.columns;
  in_passes(matrix.rank, [&](std::int64_t pass, auto constant) {
    constexpr int rank = decltype(constant)::value;
    const float* const p = factors + matrix.p + pass * matrix.rows;
    float sums[rank] = {};
    for (std::int64_t first = 0; first < matrix.rows; first += kStaged) {
      const int here = static_cast<int>(min(static_cast<std::int64_t>(kStaged), matrix.rows - first));
      __syncthreads();  // with the previous rows
      for (int i = static_cast<int>(threadIdx.x); i < rank * kStaged; i += static_cast<int>(kTileColumns))
        if (i % kStaged < here) staged[i] = p[i / kStaged * matrix.rows + first + i % kStaged];
      __syncthreads();
      const float* const m = values + matrix.offset + first * matrix.columns + column;
      if (!there) continue;
#pragma unroll 16
      for (int row = 0; row < here; ++row) {
        const float value = m[row * matrix.columns];
#pragma unroll
        for (int r = 0; r < rank; ++r) sums[r] = __fadd_rn(sums[r], __fmul_rn(value, staged[r * kStaged + row]));
      }
    }
    if (!there) return;
#pragma unroll
    for (int r = 0; r < rank; ++r) q[matrix.q + (pass + r) * matrix.columns + column] = sums[r];
  });
}

__global__ void reconstruct_kernel(LowRankTables tables, const float* __restrict__ p, const float* __restrict__ q_mean,
                                   const float* __restrict__ q_own, float* mean, float* values) {
  const Tile tile = tables.values[blockIdx.x];
  const MatrixOnGpu matrix = tables.matrices[tile.matrix];
  const std::int64_t end = min(matrix.rows * matrix.columns, tile.begin + kTileValues);
  for (std::int64_t i = tile.begin + threadIdx.x; i < end; i += kThreads) {
    const std::int64_t row = i / matrix.columns, column = i % matrix.columns;
    float all_agreed = 0, left = values[matrix.offset + i];
    for (std::int64_t first = 0; first < matrix.rank; first += kMostRank) {
      float agreed = 0, said = 0;
      for (std::int64_t r = first; r < min(matrix.rank, first + kMostRank); ++r) {
        const float factor = p[matrix.p + r * matrix.rows + row];
        const std::int64_t at = matrix.q + r * matrix.columns + column;
        const float some_agreed = __fmul_rn(factor, q_mean[at]), some_said = __fmul_rn(factor, q_own[at]);
        agreed = r == first ? some_agreed : __fadd_rn(agreed, some_agreed);
        said = r == first ? some_said : __fadd_rn(said, some_said);
      }
      all_agreed = first == 0 ? agreed : __fadd_rn(all_agreed, agreed);
      left = __fsub_rn(left, said);
    }
    mean[matrix.offset + i] = all_agreed;
    values[matrix.offset + i] = left;
  }
}

/// The sum of a block's products; every thread gets it.
__device__ double dot(const float* a, const float* b, std::int64_t n) {
  __shared__ double products[kProducts], lanes[kLanes];
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += kProducts) {
    const int here = static_cast<int>(min(static_cast<std::int64_t>(kProducts), n - first));
    __syncthreads();  // with the previous products, and with who changed `a`
    for (int i = static_cast<int>(threadIdx.x); i < here; i += kThreads)
      products[i] = static_cast<double>(a[first + i]) * static_cast<double>(b[first + i]);  // exact
    __syncthreads();
    if (threadIdx.x < kLanes)
      for (int i = static_cast<int>(threadIdx.x); i < here; i += kLanes) sum += products[i];
  }
  __syncthreads();
  if (threadIdx.x < kLanes) lanes[threadIdx.x] = sum;
  __syncthreads();
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/// Subtracts from a column its projection onto those before; returns the norm of the rest.
__device__ double remove_projections(const float* before, std::int64_t count, float* column, std::int64_t n) {
  for (std::int64_t r = 0; r < count; ++r) {
    const double common = dot(before + r * n, column, n);
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads)
      column[i] = static_cast<float>(__dsub_rn(static_cast<double>(column[i]), __dmul_rn(common, static_cast<double>(before[r * n + i]))));
  }
  return sqrt(dot(column, column, n));
}

/// One block per matrix.
__global__ void __launch_bounds__(kThreads) orthonormalise_kernel(LowRankTables tables, Factor which, float* factors) {
  const MatrixOnGpu matrix = tables.matrices[blockIdx.x];
  const bool is_p = which == Factor::p;
  const std::int64_t n = is_p ? matrix.rows : matrix.columns;
  float* const columns = factors + (is_p ? matrix.p : matrix.q);
  const Chance* const tries = tables.tries + (is_p ? matrix.p_tries : matrix.q_tries);
  for (std::int64_t r = 0; r < matrix.rank; ++r) {
    float* const column = columns + r * n;
    double before = sqrt(dot(column, column, n));
    if (!isfinite(before)) continue;
    double left = remove_projections(columns, r, column, n);
    for (std::int64_t attempt = 0; attempt < kTries && !(left > kDependent * before); ++attempt) {
      const Chance chance = tries[r * kTries + attempt];
      for (std::int64_t i = threadIdx.x; i < n; i += kThreads)  // fill_random() of low_rank.cpp
        column[i] = __fmul_rn(static_cast<float>(static_cast<std::int32_t>(word(chance, static_cast<std::uint32_t>(i))) >> 8), 0x1p-23f);
      before = sqrt(dot(column, column, n));
      left = remove_projections(columns, r, column, n);
      if (!isfinite(left)) break;  // an earlier column has a NaN
    }
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) column[i] = static_cast<float>(static_cast<double>(column[i]) / left);
  }
}

unsigned blocks(std::int64_t count) { return static_cast<unsigned>(count); }

}  // namespace

void gather_runs(const LowRankTables& tables, const float* values, float* sent, void* stream) {
  if (tables.run_count == 0) return;
  gather_kernel<<<blocks(tables.run_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, values, sent);
  require(cudaGetLastError(), "gathering vectors");
}

void scatter_runs(const LowRankTables& tables, const float* sent, float* values, float* mean, void* stream) {
  if (tables.run_count == 0) return;
  scatter_kernel<<<blocks(tables.run_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, sent, values, mean);
  require(cudaGetLastError(), "scattering vectors");
}

void orthonormalise(const LowRankTables& tables, Factor which, float* factors, void* stream) {
  if (tables.matrix_count == 0) return;
  orthonormalise_kernel<<<blocks(tables.matrix_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, which, factors);
  require(cudaGetLastError(), "orthonormalising factors");
}

void multiply(const LowRankTables& tables, const float* values, const float* q, float* p, void* stream) {
  if (tables.row_tiles == 0) return;
  multiply_kernel<<<blocks(tables.row_tiles), kTileRows * kLanes, 0, static_cast<cudaStream_t>(stream)>>>(tables, values, q, p);
  require(cudaGetLastError(), "multiplying by Q");
}

void multiply_transposed(const LowRankTables& tables, const float* values, const float* p, float* q, void* stream) {
  if (tables.column_tiles == 0) return;
  multiply_transposed_kernel<<<blocks(tables.column_tiles), kTileColumns, 0, static_cast<cudaStream_t>(stream)>>>(tables, values, p, q);
  require(cudaGetLastError(), "multiplying by P");
}

void reconstruct(const LowRankTables& tables, const float* p, const float* q_mean, const float* q_own, float* mean, float* values,
                 void* stream) {
  if (tables.value_tiles == 0) return;
  reconstruct_kernel<<<blocks(tables.value_tiles), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, p, q_mean, q_own, mean,
                                                                                                     values);
  require(cudaGetLastError(), "multiplying factors");
}

}  // namespace paceline::compress::gpu
