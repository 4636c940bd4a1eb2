#include "paceline/perf/stragglers.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/suggest.h"

namespace paceline::perf {
namespace {

/// Σ 1/i for i = 1 … count: the expected maximum of this many exponentials of mean 1.
double harmonic(std::int64_t count) {
  constexpr std::int64_t kExact = 1000;
  if (count > kExact) return std::log(static_cast<double>(count)) + std::numbers::egamma + 0.5 / static_cast<double>(count);
  double sum = 0;
  for (std::int64_t i = 1; i <= count; ++i) sum += 1 / static_cast<double>(i);
  return sum;
}

/// For draws from Gamma(shape) with mean 1: ∫ 1 − F(x)^count dx, where F is summed up along the way.
double gamma_maximum(double shape, std::int64_t count) {
  const double deviation = 1 / std::sqrt(shape), high = 1 + deviation * (40 + 40 * deviation);
  constexpr int kSteps = 40000;
  const double step = high / kSteps, scale = shape * std::log(shape) - std::lgamma(shape);
  const auto density = [&](double x) { return std::exp(scale + (shape - 1) * std::log(x) - shape * x); };
  std::vector<double> masses(kSteps);
  double whole = 0;
  for (int i = 0; i < kSteps; ++i) whole += masses[static_cast<std::size_t>(i)] = density((i + 0.5) * step);
  double below = 0, expected = 0;
  for (const double mass : masses) {
    const double middle = (below + mass / 2) / whole;
    expected += (1 - std::pow(middle, static_cast<double>(count))) * step;
    below += mass;
  }
  return expected;
}

}  // namespace

double expected_maximum(const Jitter& jitter, std::int64_t workers) {
  if (jitter.distribution == "constant") return 1;
  if (jitter.distribution == "gamma" && !(jitter.shape > 0)) throw ConfigError("jitter: the shape of a gamma distribution is above 0");
  if (jitter.distribution == "exponential_tail" && !(jitter.tail >= 0 && jitter.tail <= 1))
    throw ConfigError("jitter: the tail is a share of the mean, 0 to 1");
  if (jitter.distribution == "gamma") return workers <= 1 ? 1 : gamma_maximum(jitter.shape, workers);
  if (jitter.distribution == "exponential_tail") return 1 - jitter.tail + jitter.tail * harmonic(workers);
  const std::string_view known[] = {"constant", "gamma", "exponential_tail"};
  throw ConfigError(unknown_message("distribution of jitter", jitter.distribution, known));
}

}  // namespace paceline::perf
