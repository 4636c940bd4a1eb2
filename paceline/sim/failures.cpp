#include "paceline/sim/failures.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/event_loop.h"
#include "paceline/base/random.h"

namespace paceline::sim {
namespace {

constexpr double kCalm = 20;      // segments this much shorter than the mean time between failures are combined into one event
constexpr double kHopeless = 12;  // a segment of this many mean times between failures succeeds once in 10⁵ attempts

/// The clock's unit: short enough relative to the mean time between failures for accuracy, and long enough for thousands of those to fit.
double unit_of(double mtbf_s) { return mtbf_s * 1e-12; }

Nanoseconds in_units(double seconds, double unit_s) { return Nanoseconds(std::llround(seconds / unit_s)); }

void check_failures(const FailureSettings& settings, std::span<const double> steps) {
  for (const double value : {settings.checkpoint_s, settings.restart_s, settings.interval_s})
    if (!(value >= 0)) throw ConfigError("failures: times are 0 or more");
  if (!(settings.mtbf_s > 0)) throw ConfigError("failures: the mean time between failures is above 0");
  ensure(!steps.empty() && settings.devices > 0, "some steps and devices");
}

/// The whole job: its segments and its failures.
class JobLife {
 public:
  JobLife(const FailureSettings& settings, std::span<const double> steps)
      : settings_(settings),
        mean_s_(settings.mtbf_s / static_cast<double>(settings.devices)),
        unit_s_(unit_of(mean_s_)),
        stream_(settings.seed, Purpose::failure, 0),
        loop_(2) {
    double sum = 0, squares = 0;
    for (const double step : steps) sum += step, squares += step * step;
    const double count = static_cast<double>(steps.size());
    step_s_ = sum / count, deviation_s_ = std::sqrt(std::max(0.0, squares / count - step_s_ * step_s_));
    steps_ = std::max(1.0, std::round(settings.interval_s / step_s_));
    const double segment = steps_ * step_s_ + settings.checkpoint_s;
    together_ = std::max(1.0, std::floor(mean_s_ / (kCalm * segment)));
    if (segment > kHopeless * mean_s_ || settings.restart_s > kHopeless * mean_s_)
      throw ConfigError(
          fmt::format("a device fails every {:.3g} s on average, so {:.3g} s between checkpoints or {:.3g} s for a restart rarely pass "
                      "without a failure; use fewer or more reliable devices, or checkpoint more often",
                      mean_s_, segment, settings.restart_s));
  }

  Survival run() {
    plan_failure();
    begin_segment();
    while (life_.failures < settings_.failures) loop_.advance() == kFailure ? fail() : progress();
    life_.wall_s = static_cast<double>(loop_.now().count()) * unit_s_;
    return life_;
  }

 private:
  enum Actor : std::size_t { kFailure, kProgress };
  enum class Doing { segment, checkpoint, restart, calm };

  void plan_failure() { loop_.plan(kFailure, in_units(-mean_s_ * std::log(1 - stream_.uniform_double()), unit_s_)); }
  void begin(Doing doing, double duration) {
    doing_ = doing, begun_ = loop_.now();
    loop_.plan(kProgress, in_units(duration, unit_s_));
  }
  /// The sum of many independent steps is approximately normal.
  void begin_segment() {
    if (together_ > 1) {
      const double count = together_ * steps_;
      const double computed = count * step_s_ + std::sqrt(count) * deviation_s_ * static_cast<double>(stream_.normal());
      cycle_s_ = std::max(computed, 0.1 * count * step_s_) / together_ + settings_.checkpoint_s;
      return begin(Doing::calm, together_ * cycle_s_);
    }
    const double drawn = steps_ * step_s_ + std::sqrt(steps_) * deviation_s_ * static_cast<double>(stream_.normal());
    begin(Doing::segment, std::max(drawn, 0.1 * steps_ * step_s_));
  }
  double passed() const { return static_cast<double>((loop_.now() - begun_).count()) * unit_s_; }

  /// Counts the `count` segments of one event as done, with their checkpoints.
  void keep_calm_segments(double count) {
    life_.checkpoints_s += count * settings_.checkpoint_s, life_.useful_s += count * (cycle_s_ - settings_.checkpoint_s);
    life_.checkpoints += static_cast<std::int64_t>(count);
  }

  void progress() {
    if (doing_ == Doing::calm) {
      keep_calm_segments(together_);
      return begin_segment();
    }
    if (doing_ == Doing::segment) {
      segment_s_ = passed();
      return begin(Doing::checkpoint, settings_.checkpoint_s);
    }
    if (doing_ == Doing::checkpoint) life_.checkpoints_s += passed(), life_.useful_s += segment_s_, segment_s_ = 0, ++life_.checkpoints;
    else life_.restarts_s += passed();
    begin_segment();
  }

  void fail() {
    ++life_.failures;
    if (doing_ == Doing::calm) {
      const double whole = std::floor(passed() / cycle_s_), rest = passed() - whole * cycle_s_;
      keep_calm_segments(whole);
      life_.lost_s += rest, life_.longest_loss_s = std::max(life_.longest_loss_s, std::min(rest, cycle_s_ - settings_.checkpoint_s));
      begin(Doing::restart, settings_.restart_s);
      return plan_failure();
    }
    const double lost = segment_s_ + passed();
    if (doing_ == Doing::restart) life_.restarts_s += passed();
    else life_.lost_s += lost, life_.longest_loss_s = std::max(life_.longest_loss_s, doing_ == Doing::segment ? passed() : segment_s_);
    segment_s_ = 0;
    begin(Doing::restart, settings_.restart_s);
    plan_failure();
  }

  const FailureSettings& settings_;
  double mean_s_, unit_s_, step_s_ = 0, deviation_s_ = 0, steps_ = 1;
  double together_ = 1, cycle_s_ = 0;  // how many segments are one event, and how long each takes with its checkpoint
  RandomStream stream_;
  EventLoop loop_;
  Survival life_;
  Doing doing_ = Doing::segment;
  Nanoseconds begun_{0};
  double segment_s_ = 0;  // steps of a segment, which do not count until its checkpoint is written
};

/// Workers that fail and return independently: the share of them that is up, on average.
double workers_up(const FailureSettings& settings, double step_s) {
  const auto workers = static_cast<std::size_t>(settings.workers);
  const double unit_s = unit_of(settings.mtbf_s);
  const auto elapsed = [&](Nanoseconds time) { return static_cast<double>(time.count()) * unit_s; };
  EventLoop loop(workers);
  RandomStream stream(settings.seed, Purpose::failure, 1);
  std::vector<Nanoseconds> since(workers, Nanoseconds(0));
  std::vector<bool> up(workers, true);
  double there = 0;
  const auto fails = [&](std::size_t worker) {
    loop.plan(worker, in_units(-settings.mtbf_s * std::log(1 - stream.uniform_double()), unit_s));
  };
  for (std::size_t i = 0; i < workers; ++i) fails(i);
  const std::int64_t wanted = std::max<std::int64_t>(settings.failures, 4 * settings.workers);
  for (std::int64_t failures = 0; failures < wanted;) {
    const std::size_t worker = loop.advance();
    if (up[worker]) {
      ++failures;
      there += std::max(0.0, elapsed(loop.now() - since[worker]) - step_s / 2);  // half a step is lost, on average
      loop.plan(worker, in_units(settings.restart_s, unit_s));
    } else {
      fails(worker);
    }
    up[worker] = !up[worker], since[worker] = loop.now();
  }
  for (std::size_t i = 0; i < workers; ++i)
    if (up[i]) there += elapsed(loop.now() - since[i]);
  return there / (elapsed(loop.now()) * static_cast<double>(workers));
}

}  // namespace

Survival survive(const FailureSettings& settings, std::span<const double> steps) {
  check_failures(settings, steps);
  Survival life = JobLife(settings, steps).run();
  if (settings.workers > 0) life.workers_up = workers_up(settings, steps.front());
  return life;
}

}  // namespace paceline::sim
