#include "paceline/nn/score_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "paceline/nn/loops.h"

namespace paceline::nn::score_rows {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // scores

template <class Work>
void for_each_row(const at::Tensor& scores, const Work& work) {
  const std::int64_t keys = scores.size(2);
  at::parallel_for(0, scores.size(0) * scores.size(1), std::max<std::int64_t>(kGrain / keys, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) work(row, keys);
  });
}

}  // namespace

bool has_loops(const at::Tensor& scores) { return scores.is_cpu() && scores.scalar_type() == at::kFloat && scores.is_contiguous(); }

void softmax(const at::Tensor& scores, double scale, std::int64_t first) {
  auto* values = scores.data_ptr<float>();
  const std::int64_t rows = scores.size(1);
  for_each_row(scores, [&](std::int64_t row, std::int64_t keys) {
    const std::int64_t seen = first == kSeesAll ? keys : std::min(first + row % rows + 1, keys);
    loops::softmax(values + row * keys, seen, keys, static_cast<float>(scale));
  });
}

void softmax_back(const at::Tensor& weights, const at::Tensor& gradient, double scale) {
  const auto* values = weights.data_ptr<float>();
  auto* slopes = gradient.data_ptr<float>();
  for_each_row(weights, [&](std::int64_t row, std::int64_t keys) {
    loops::softmax_back(values + row * keys, slopes + row * keys, keys, static_cast<float>(scale));
  });
}

}  // namespace paceline::nn::score_rows
