// Passes over rows × features of a transformer: Paceline's own kernels on a GPU (rows_cuda.h), LibTorch's operations elsewhere.
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

/// place ← Σ over the rows of `values`, [rows, features]: the gradient of a bias.
void deliver_column_sums(const at::Tensor& place, const at::Tensor& values, const Pass& pass);

inline constexpr std::int64_t kNoRow = -1;

/// table[t] ← the sum of the rows of `gradient`, [tokens…, features], whose token is t; added to the table if `add` is set. The
/// rows of token kNoRow are ignored.
void deliver_table_sums(const at::Tensor& table, const at::Tensor& gradient, const at::Tensor& tokens, bool add, const Pass& pass);

/// gradient · GELU'(x), whose column sums go to `place`. All are contiguous.
at::Tensor gelu_gradient_with_sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& place, const Pass& pass);

/// The weights of a layer norm. No shift: undefined.
struct NormWeights {
  at::Tensor scale, shift;
  Tensors gradients;
};
inline NormWeights norm_weights(const Weights& weights) {
  return {weights.values[0], weights.values.size() > 1 ? weights.values[1] : at::Tensor(), weights.gradients};
}

struct NormedRows {
  at::Tensor y, sum, mean, inverse;  // the norm; its input; statistics of its rows
};

/// The layer norm of x, or of x + residual if that is defined. Both are contiguous.
NormedRows normed_rows(const at::Tensor& x, const at::Tensor& residual, const NormWeights& weights, double epsilon);

/// The gradient of the sum, plus `onto` if that is defined. `gradient` is contiguous.
at::Tensor normed_rows_back(const at::Tensor& gradient, const NormedRows& made, const NormWeights& weights, const at::Tensor& onto,
                            const Pass& pass);

}  // namespace paceline::nn
