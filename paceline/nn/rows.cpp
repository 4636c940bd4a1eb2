#include "paceline/nn/rows.h"

#include <ATen/ATen.h>

#include "paceline/nn/ops/gelu.h"
#if PACELINE_WITH_CUDA
#include "paceline/nn/rows_cuda.h"
#include "paceline/tensor/recorded.h"
#endif

namespace paceline::nn {

namespace {

/// The same with LibTorch's operations.
NormedRows plainly_normed(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& scale, const at::Tensor& shift,
                          double epsilon) {
  NormedRows made;
  made.sum = residual.defined() ? x + residual : x;
  std::tie(made.y, made.mean, made.inverse) = at::native_layer_norm(made.sum, {x.size(-1)}, scale, shift, epsilon);
  return made;
}

at::Tensor plainly_normed_back(const at::Tensor& gradient, const NormedRows& made, const NormWeights& weights, const at::Tensor& onto,
                               const Pass& pass) {
  const bool shifted = weights.shift.defined();
  auto [input, by_scale, by_shift] = at::native_layer_norm_backward(gradient, made.sum, {gradient.size(-1)}, made.mean, made.inverse,
                                                                    weights.scale, weights.shift, {true, true, shifted});
  deliver(weights.gradients[0], by_scale, pass);
  if (shifted) deliver(weights.gradients[1], by_shift, pass);
  return onto.defined() ? onto + input : input;
}

void plainly_deliver_table(const at::Tensor& table, const at::Tensor& gradient, const at::Tensor& tokens, bool add, const Pass& pass) {
  const at::Tensor made = at::embedding_dense_backward(gradient, tokens, table.size(0), -1, false);
  if (add) at::Tensor(table).add_(made);
  else deliver(table, made, pass);
}

at::Tensor plainly_with_sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& place, const Pass& pass) {
  at::Tensor made = gelu_gradient(gradient, x);
  deliver(place, made.sum(0), pass);
  return made;
}

}  // namespace

#if PACELINE_WITH_CUDA

namespace {

RowsShape rows_shape(const at::Tensor& values) {
  const std::int64_t columns = values.size(-1);
  return {columns == 0 ? 0 : values.numel() / columns, static_cast<int>(columns), values.scalar_type() == at::kBFloat16};
}

at::Tensor sums_scratch(const at::Tensor& values, std::int64_t columns) {
  return at::empty({kMostPartials * columns}, values.options().dtype(at::kFloat));
}

/// Whether the kernels take [rows, features] of this kind, with gradients of weights in the type of `place`.
bool has_row_kernels(const at::Tensor& rows, const at::Tensor& place) {
  const bool known = rows.scalar_type() == at::kBFloat16 || rows.scalar_type() == at::kFloat;
  return rows.is_cuda() && known && rows.size(-1) % 8 == 0 && rows.numel() > 0 && rows.is_contiguous() &&
         place.scalar_type() == at::kFloat && place.is_contiguous();
}

const void* data_or_null(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }

}  // namespace

void deliver_column_sums(const at::Tensor& place, const at::Tensor& values, const Pass& pass) {
  if (!has_row_kernels(values, place)) return deliver(place, values.sum(0), pass);
  const at::Tensor scratch = sums_scratch(values, values.size(-1));
  launch_column_sums(rows_shape(values), values.data_ptr(),
                     {.scratch = scratch.data_ptr<float>(), .place = place.data_ptr<float>(), .add = pass.accumulate},
                     tensor::current_stream(values.device()));
}

void deliver_table_sums(const at::Tensor& table, const at::Tensor& gradient, const at::Tensor& tokens, bool add, const Pass& pass) {
  const at::Tensor dense = gradient.contiguous();
  if (!has_row_kernels(dense, table)) return plainly_deliver_table(table, gradient, tokens, add, pass);
  const auto [sorted, order] = at::sort(tokens.flatten().to(at::kInt), /*stable=*/true, 0, /*descending=*/false);
  if (!add && !pass.accumulate) at::Tensor(table).zero_();
  launch_table_sums(rows_shape(dense), dense.data_ptr(), sorted.data_ptr<int>(), order.data_ptr<std::int64_t>(), table.data_ptr<float>(),
                    tensor::current_stream(dense.device()));
}

at::Tensor gelu_gradient_with_sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& place, const Pass& pass) {
  if (!has_row_kernels(x, place)) return plainly_with_sums(gradient, x, place, pass);
  at::Tensor out = at::empty_like(x);
  const at::Tensor scratch = sums_scratch(x, x.size(-1));
  launch_gelu_back(rows_shape(x), gradient.data_ptr(), x.data_ptr(), out.data_ptr(),
                   {.scratch = scratch.data_ptr<float>(), .place = place.data_ptr<float>(), .add = pass.accumulate},
                   tensor::current_stream(x.device()));
  return out;
}

namespace {

bool has_norm_kernels(const at::Tensor& x, const NormWeights& weights) {
  return !weights.gradients.empty() && has_row_kernels(x, weights.gradients[0]) && x.size(-1) <= kMostFeatures &&
         weights.scale.scalar_type() == x.scalar_type();
}

}  // namespace

NormedRows normed_rows(const at::Tensor& x, const at::Tensor& residual, const NormWeights& weights, double epsilon) {
  if (!has_norm_kernels(x, weights)) return plainly_normed(x, residual, weights.scale, weights.shift, epsilon);
  const RowsShape shape = rows_shape(x);
  NormedRows made;
  made.y = at::empty_like(x);
  made.sum = residual.defined() ? at::empty_like(x) : x;
  made.mean = at::empty({shape.rows}, x.options().dtype(at::kFloat));
  made.inverse = at::empty_like(made.mean);
  launch_layer_norm(shape,
                    {.x = x.data_ptr(),
                     .residual = data_or_null(residual),
                     .scale = weights.scale.data_ptr(),
                     .shift = data_or_null(weights.shift),
                     .sum = made.sum.data_ptr(),
                     .y = made.y.data_ptr(),
                     .mean = made.mean.data_ptr<float>(),
                     .inverse = made.inverse.data_ptr<float>(),
                     .epsilon = static_cast<float>(epsilon)},
                    tensor::current_stream(x.device()));
  return made;
}

at::Tensor normed_rows_back(const at::Tensor& gradient, const NormedRows& made, const NormWeights& weights, const at::Tensor& onto,
                            const Pass& pass) {
  if (!has_norm_kernels(made.sum, weights)) return plainly_normed_back(gradient, made, weights, onto, pass);
  const at::Tensor dense = onto.defined() ? onto.contiguous() : onto, scratch = sums_scratch(gradient, 2 * gradient.size(-1));
  at::Tensor out = at::empty_like(gradient);
  launch_layer_norm_back(rows_shape(gradient),
                         {.gradient = gradient.data_ptr(),
                          .x = made.sum.data_ptr(),
                          .scale = weights.scale.data_ptr(),
                          .onto = data_or_null(dense),
                          .mean = made.mean.data_ptr<float>(),
                          .inverse = made.inverse.data_ptr<float>(),
                          .out = out.data_ptr()},
                         {.scratch = scratch.data_ptr<float>(),
                          .place = weights.gradients[0].data_ptr<float>(),
                          .second = weights.shift.defined() ? weights.gradients[1].data_ptr<float>() : nullptr,
                          .add = pass.accumulate},
                         tensor::current_stream(gradient.device()));
  return out;
}

#else

void deliver_column_sums(const at::Tensor& place, const at::Tensor& values, const Pass& pass) { deliver(place, values.sum(0), pass); }

void deliver_table_sums(const at::Tensor& table, const at::Tensor& gradient, const at::Tensor& tokens, bool add, const Pass& pass) {
  plainly_deliver_table(table, gradient, tokens, add, pass);
}

at::Tensor gelu_gradient_with_sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& place, const Pass& pass) {
  return plainly_with_sums(gradient, x, place, pass);
}

NormedRows normed_rows(const at::Tensor& x, const at::Tensor& residual, const NormWeights& weights, double epsilon) {
  return plainly_normed(x, residual, weights.scale, weights.shift, epsilon);
}

at::Tensor normed_rows_back(const at::Tensor& gradient, const NormedRows& made, const NormWeights& weights, const at::Tensor& onto,
                            const Pass& pass) {
  return plainly_normed_back(gradient, made, weights, onto, pass);
}

#endif

}  // namespace paceline::nn
