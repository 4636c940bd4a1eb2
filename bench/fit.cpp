#include "fit.h"

#include <array>
#include <cmath>

#include "paceline/comm/reduce.h"
#include "paceline/comm/tuning.h"
#include "paceline/schedule/schedule.h"

namespace paceline::bench {
namespace {

/// Seconds that adding one byte of a vector to another takes, in a vector that no cache holds.
double reduction_cost() {
  constexpr std::int64_t kElements = 4 << 20;
  std::vector<float> into(kElements), from(kElements);
  const double once = time_of([&] { comm::combine(comm::DType::f32, comm::ReduceOp::sum, into.data(), from.data(), kElements); }, 0.05);
  return once / (kElements * sizeof(float));
}

schedule::Counts counts_of(const std::string& collective, const std::string& algorithm, int ranks, std::int64_t bytes) {
  for (const schedule::Collective kind : schedule::kCollectives)
    if (schedule::name_of(kind) == collective)
      // As the ranks of one host run it.
      return schedule::algorithm_for(algorithm, kind)
          .make.formula({.collective = kind, .size = ranks, .count = bytes / 4, .per_host = ranks, .chunks = comm::chunks_for(bytes)});
  return {};
}

}  // namespace

std::optional<Fit> fit_costs(const std::string& collective, const std::string& algorithm, int ranks,
                             const std::map<std::int64_t, double>& seconds) {
  if (seconds.size() < 3) return std::nullopt;
  Fit fit{.collective = collective, .algorithm = algorithm, .ranks = ranks};
  fit.reduce_s_per_byte = reduction_cost();
  // Least squares of (t − reduced·g)/t against rounds/t and sent/t: relative errors, so that small messages count as much as large ones.
  double aa = 0, ab = 0, bb = 0, at = 0, bt = 0;
  for (const auto& [bytes, time] : seconds) {
    const schedule::Counts counts = counts_of(collective, algorithm, ranks, bytes);
    const double a = counts.rounds / time, b = static_cast<double>(counts.sent) * 4 / time;
    const double rest = 1 - static_cast<double>(counts.reduced) * 4 * fit.reduce_s_per_byte / time;
    aa += a * a, ab += a * b, bb += b * b, at += a * rest, bt += b * rest;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant <= 0) return std::nullopt;
  fit.alpha_s = (at * bb - bt * ab) / determinant;
  fit.bytes_per_s = determinant / (bt * aa - at * ab);
  std::vector<double> errors;
  for (const auto& [bytes, time] : seconds) {
    const schedule::Counts counts = counts_of(collective, algorithm, ranks, bytes);
    const double predicted = counts.rounds * fit.alpha_s + static_cast<double>(counts.sent) * 4 / fit.bytes_per_s +
                             static_cast<double>(counts.reduced) * 4 * fit.reduce_s_per_byte;
    errors.push_back(std::abs(predicted - time) / time);
  }
  fit.error = median(errors);
  return fit;
}

Row Fit::row(const std::string& engine) const {
  return {{"engine", engine},
          {"algorithm", algorithm},
          {"peer", ""},
          {"ranks", ranks},
          {"alpha_us", alpha_s * 1e6},
          {"B_gb_per_s", bytes_per_s / 1e9},
          {"g_ns_per_kb", reduce_s_per_byte * 1e12},
          {"fit_error", error}};
}

}  // namespace paceline::bench
