#include "paceline/nn/score_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "paceline/nn/exponential.h"

namespace paceline::nn::score_rows {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // scores

void softmax_row(float* row, std::int64_t seen, std::int64_t keys, float scale) {
  // Eight maxima side by side, because the compiler may not reorder std::max of floats.
  constexpr std::int64_t kLanes = 8;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= seen; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = row[i + lane] > lanes[lane] ? row[i + lane] : lanes[lane];
  for (; i < seen; ++i) lanes[0] = std::max(lanes[0], row[i]);
  const float largest = *std::max_element(lanes, lanes + kLanes);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < seen; ++k) {
    const float distance = scale * (row[k] - largest);
    const float value = exponential(distance) + (distance - distance);  // not finite if the score is not; the clamp would hide that
    row[k] = value;
    sum += value;
  }
  const float factor = 1 / sum;
#pragma omp simd
  for (std::int64_t k = 0; k < seen; ++k) row[k] *= factor;
  std::fill(row + seen, row + keys, 0.0f);
}

void softmax_back_row(const float* weights, float* gradient, std::int64_t keys, float scale) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = 0; k < keys; ++k) sum += weights[k] * gradient[k];
#pragma omp simd
  for (std::int64_t k = 0; k < keys; ++k) gradient[k] = scale * weights[k] * (gradient[k] - sum);
}

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
    softmax_row(values + row * keys, seen, keys, static_cast<float>(scale));
  });
}

void softmax_back(const at::Tensor& weights, const at::Tensor& gradient, double scale) {
  const auto* values = weights.data_ptr<float>();
  auto* slopes = gradient.data_ptr<float>();
  for_each_row(weights, [&](std::int64_t row, std::int64_t keys) {
    softmax_back_row(values + row * keys, slopes + row * keys, keys, static_cast<float>(scale));
  });
}

}  // namespace paceline::nn::score_rows
