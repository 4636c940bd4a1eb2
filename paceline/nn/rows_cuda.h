// Kernels for rows × columns of a transformer: layer norms with the sum before them, GELU's gradient, and sums over rows for the gradients
// of biases, norms and the like. Sums are formed in a fixed order, so results repeat bit for bit. No CUDA header here: a stream is the
// void* behind cudaStream_t.
#pragma once

#include <cstdint>

namespace paceline::nn {

/// `columns` is a multiple of 8; of a layer norm, at most kMostFeatures.
struct RowsShape {
  std::int64_t rows = 0;
  int columns = 0;
  bool bf16 = false;  // of values and their gradients, weights included; statistics and gradients of weights are fp32
};

constexpr int kMostFeatures = 4096;
constexpr int kMostPartials = 1024;  // rows of partial sums that a launch leaves in its scratch

/// What a sum over rows also needs: kMostPartials × columns floats (× 2 for a layer norm), and where the result goes.
struct ColumnSums {
  float* scratch = nullptr;
  float* place = nullptr;   // of a layer norm: of the scale
  float* second = nullptr;  // of the shift; null: none
  bool add = false;         // to the values that are there
};

/// place ← Σ over rows.
void launch_column_sums(const RowsShape& shape, const void* values, const ColumnSums& sums, void* stream);

/// out ← gradient · GELU'(x), and the sums of that.
void launch_gelu_back(const RowsShape& shape, const void* gradient, const void* x, void* out, const ColumnSums& sums, void* stream);

/// table[token] += the sum of the rows whose token it is, in their order. `tokens`: sorted; order[i]: the row of the i-th of them.
void launch_table_sums(const RowsShape& shape, const void* values, const int* tokens, const std::int64_t* order, float* table,
                       void* stream);

/// y ← norm(x), or of sum ← x + residual if there is one. shift null: none. mean and inverse deviation: one float per row.
struct LayerNormForward {
  const void *x = nullptr, *residual = nullptr, *scale = nullptr, *shift = nullptr;
  void *sum = nullptr, *y = nullptr;
  float *mean = nullptr, *inverse = nullptr;
  float epsilon = 0;
};
void launch_layer_norm(const RowsShape& shape, const LayerNormForward& pass, void* stream);

/// out ← the gradient of x, plus `onto` if it is given.
struct LayerNormBackward {
  const void *gradient = nullptr, *x = nullptr, *scale = nullptr, *onto = nullptr;
  const float *mean = nullptr, *inverse = nullptr;
  void* out = nullptr;
};
void launch_layer_norm_back(const RowsShape& shape, const LayerNormBackward& pass, const ColumnSums& sums, void* stream);

}  // namespace paceline::nn
