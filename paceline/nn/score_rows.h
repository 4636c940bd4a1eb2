// Loops over the scores of attention on a CPU, in fp32: one pass where LibTorch makes four, and an exponential that
// vectorises on any processor.
#pragma once

#include <ATen/core/Tensor.h>

namespace paceline::nn::score_rows {

constexpr std::int64_t kSeesAll = -1;

/// Whether the loops can handle these scores, [n, rows, keys].
bool has_loops(const at::Tensor& scores);

/// In place: softmax(scale · scores) of every row. Row r sees the keys [0, first + r], and the others become 0; with `first` =
/// kSeesAll it sees all keys.
void softmax(const at::Tensor& scores, double scale, std::int64_t first);

/// In place: the gradient of the scores from that of their softmax.
void softmax_back(const at::Tensor& weights, const at::Tensor& gradient, double scale);

}  // namespace paceline::nn::score_rows
