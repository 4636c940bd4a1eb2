#include "paceline/perf/goodput.h"

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"

namespace paceline::perf {
namespace {

void check(const Failures& failures) {
  for (const double value : {failures.mtbf_s, failures.checkpoint_s, failures.restart_s, failures.interval_s})
    if (!(value >= 0)) throw ConfigError("failures: times are 0 or more");
  if (failures.devices < 1) throw ConfigError("failures: at least one device runs the job");
}

double job_mtbf(const Failures& failures) { return failures.mtbf_s / static_cast<double>(failures.devices); }

/// The share of the wall-clock time that is left for steps, with segments of `interval` seconds.
double share_at(const Failures& failures, double interval) {
  const double mean = job_mtbf(failures);
  const double wall = mean * std::exp(failures.restart_s / mean) * std::expm1((interval + failures.checkpoint_s) / mean);
  return interval / wall;
}

}  // namespace

double best_interval(const Failures& failures) {
  check(failures);
  if (failures.mtbf_s == 0) return 0;
  // The share has a single maximum. It is below the job's mean time between failures, and at 0 if checkpoints cost nothing.
  double low = 0, high = 2 * job_mtbf(failures);
  constexpr int kHalvings = 200;
  const double golden = (std::sqrt(5.0) - 1) / 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double a = high - golden * (high - low), b = low + golden * (high - low);
    (share_at(failures, a) >= share_at(failures, b) ? high : low) = share_at(failures, a) >= share_at(failures, b) ? b : a;
  }
  return (low + high) / 2;
}

Goodput goodput(const Failures& failures) {
  check(failures);
  const double interval = failures.interval_s > 0 ? failures.interval_s : best_interval(failures);
  if (failures.mtbf_s == 0)
    return {.interval_s = interval, .share = interval > 0 ? interval / (interval + failures.checkpoint_s) : 1, .lost_s = 0};
  const double mean = job_mtbf(failures), segment = interval + failures.checkpoint_s;
  // The expected time of an exponential failure, given that it occurs within a segment.
  const double lost = segment > 0 ? mean - segment / std::expm1(segment / mean) : 0;
  // Checkpoints that cost nothing are written all the time, so only restarts remain.
  const double share = interval > 0 ? share_at(failures, interval) : std::exp(-failures.restart_s / mean);
  return {.interval_s = interval, .share = share, .lost_s = lost};
}

}  // namespace paceline::perf
