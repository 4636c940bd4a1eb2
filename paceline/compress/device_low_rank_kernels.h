// The kernels of powersgd: those of low_rank.h for all matrices of a range at once. Streams are cudaStream_t, and pointers are to GPU
// memory.
#pragma once

#include "paceline/compress/device_kernels.h"

namespace paceline::compress::gpu {

inline constexpr std::int64_t kTileRows = 32, kTileColumns = 64, kTileValues = 4096;
/// How many random columns are tried if a column depends linearly on the previous ones. A single one is independent of them except in one
/// case in 10⁵.
inline constexpr std::int64_t kTries = 4;

struct MatrixOnGpu {
  std::int64_t offset, rows, columns, rank;
  std::int64_t p, q;              // offsets of its factors
  std::int64_t p_tries, q_tries;  // the first of rank × kTries draws
};

/// The rows, columns or values of a matrix from `begin`.
struct Tile {
  std::int64_t matrix, begin;
};

/// Values that are sent unchanged, at most kTileValues of them; or a gap between tensors, where `sent` is negative.
struct RunOnGpu {
  std::int64_t offset, count, sent;
};

struct LowRankTables {
  const MatrixOnGpu* matrices;
  const Tile *rows, *columns, *values;
  const RunOnGpu* runs;
  const Chance* tries;
  std::int64_t matrix_count, row_tiles, column_tiles, value_tiles, run_count;
};

enum class Factor { p, q };

/// sent = the values that are sent unchanged.
void gather_runs(const LowRankTables& tables, const float* values, float* sent, void* stream);
/// mean = what was sent, and values = 0 there; gaps of the mean become zeros.
void scatter_runs(const LowRankTables& tables, const float* sent, float* values, float* mean, void* stream);
void orthonormalise(const LowRankTables& tables, Factor which, float* factors, void* stream);
void multiply(const LowRankTables& tables, const float* values, const float* q, float* p, void* stream);
void multiply_transposed(const LowRankTables& tables, const float* values, const float* p, float* q, void* stream);
void reconstruct(const LowRankTables& tables, const float* p, const float* q_mean, const float* q_own, float* mean, float* values,
                 void* stream);

}  // namespace paceline::compress::gpu
