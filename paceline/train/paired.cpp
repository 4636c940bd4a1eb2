#include "paceline/train/paired.h"

namespace paceline::train {

Difference paired_difference(std::span<const std::pair<double, double>> pairs) {
  double sum = 0, squares = 0, count = 0;
  for (const auto& [first, second] : pairs)
    if (std::isfinite(first) && std::isfinite(second)) sum += first - second, ++count;
  const double mean = sum / count;
  for (const auto& [first, second] : pairs)
    if (std::isfinite(first) && std::isfinite(second)) squares += std::pow(first - second - mean, 2);
  Difference found{.pairs = static_cast<std::int64_t>(count)};
  if (count > 0) found.mean = mean;
  if (count > 1) found.standard_error = std::sqrt(squares / (count - 1) / count);
  return found;
}

std::optional<double> time_to(const Outcome& outcome, double accuracy) {
  constexpr double kRounding = 1e-9;  // an error is 100 minus the accuracy, so it has rounding errors in its last bits
  for (std::size_t i = 0; i < outcome.error.size(); ++i)
    if (outcome.error[i] <= 100 - accuracy + kRounding) return outcome.time[i];
  return std::nullopt;
}

}  // namespace paceline::train
