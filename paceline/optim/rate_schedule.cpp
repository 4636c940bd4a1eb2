#include "paceline/optim/rate_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "paceline/base/error.h"

namespace paceline::optim {
namespace {

/// How many of the milestones have passed.
double passed(const std::vector<double>& milestones, double epoch) {
  return static_cast<double>(std::upper_bound(milestones.begin(), milestones.end(), epoch) - milestones.begin());
}

/// The completed share of the run, in [0, 1].
double done(const Progress& progress) { return std::clamp(progress.epoch / progress.epochs, 0.0, 1.0); }

double between(double from, double to, double share) { return from + (to - from) * share; }

double constant(const ScheduleConfig&, const Progress&) { return 1; }

double step(const ScheduleConfig& config, const Progress& progress) {
  constexpr double kRounding = 1e-9;  // 0.3 / 0.1 is a little less than 3
  return std::pow(config.gamma, std::floor(progress.epoch / config.step_epochs + kRounding));
}

double multi_step(const ScheduleConfig& config, const Progress& progress) {
  return std::pow(config.gamma, passed(config.milestones, progress.epoch));
}

double polynomial(const ScheduleConfig& config, const Progress& progress) {
  return between(config.final_factor, 1, std::pow(1 - done(progress), config.power));
}

double cosine(const ScheduleConfig& config, const Progress& progress) {
  return between(config.final_factor, 1, (1 + std::cos(std::numbers::pi * done(progress))) / 2);
}

double one_cycle(const ScheduleConfig& config, const Progress& progress) {
  const double peak = config.peak_epoch > 0 ? std::min(config.peak_epoch / progress.epochs, 1.0) : 0.3, now = done(progress);
  if (now < peak) return between(config.initial_factor, 1, now / peak);
  return peak < 1 ? between(1, config.final_factor, (now - peak) / (1 - peak)) : 1;
}

double piecewise(const ScheduleConfig& config, const Progress& progress) {
  const auto& epochs = config.points_epoch;
  const auto& factors = config.points_factor;
  const auto next = static_cast<std::size_t>(passed(epochs, progress.epoch));
  if (next == 0) return factors.front();
  if (next == epochs.size()) return factors.back();
  return between(factors[next - 1], factors[next], (progress.epoch - epochs[next - 1]) / (epochs[next] - epochs[next - 1]));
}

constexpr Entry<RateFactor> kSchedules[] = {
    {"constant", "the same rate throughout", constant},
    {"step", "× gamma every step_epochs", step},
    {"multi_step", "× gamma at each of the milestones", multi_step},
    {"polynomial", "(1 − t)^power down to final_factor", polynomial},
    {"cosine", "half a cosine down to final_factor", cosine},
    {"one_cycle", "linear up to peak_epoch, then linear down to final_factor", one_cycle},
    {"piecewise", "linear between the points (points_epoch, points_factor)", piecewise},
};

void require_ascending(const char* key, const std::vector<double>& epochs) {
  const bool ascending = std::adjacent_find(epochs.begin(), epochs.end(), std::greater_equal<>()) == epochs.end();
  if (!ascending || (!epochs.empty() && epochs.front() < 0))
    throw ConfigError(fmt::format("schedule.{} must be epochs of at least 0 in strictly ascending order, not {}", key, epochs));
}

double warmup(const ScheduleConfig& config, double scaling, double epoch) {
  if (epoch >= config.warmup_epochs) return 1;
  double start = config.warmup_factor;
  if (start < 0) start = config.linear_scaling ? std::min(1 / scaling, 1.0) : 0;
  return between(start, 1, epoch / config.warmup_epochs);
}

struct Growth {
  double wanted, reached;  // batches
};

Growth growth(const ScheduleConfig& config, std::int64_t batch, double epoch) {
  validate(config);
  if (batch < 1) throw ConfigError(fmt::format("the global batch must be at least 1, not {}", batch));
  const bool limited = config.largest_batch > 0;
  if (limited && batch > config.largest_batch)
    throw ConfigError(
        fmt::format("the global batch {} is above schedule.largest_batch {}; lower data.batch, or raise schedule.largest_batch", batch,
                    config.largest_batch));
  const double wanted = static_cast<double>(batch) * std::pow(config.batch_factor, passed(config.batch_milestones, epoch));
  const double reached = limited ? std::min(wanted, static_cast<double>(config.largest_batch)) : wanted;
  constexpr double kMost = 1e15;  // far below the limit of the integer
  if (!(reached < kMost))
    throw ConfigError(fmt::format("the batch grows to {:g} in epoch {:g}; set schedule.largest_batch", reached, epoch));
  return {wanted, reached};
}

}  // namespace

std::span<const Entry<RateFactor>> schedules() { return kSchedules; }

void ScheduleConfig::describe(Section& section) {
  std::vector<std::string_view> names;
  for (const Listing& row : listing(schedules())) names.push_back(row.key);
  section.field("name", name, "the schedule of the learning rate").one_of(std::move(names));
  section.field("warmup_epochs", warmup_epochs, "epochs over which the rate grows to its full value").at_least(0);
  section
      .field("warmup_factor", warmup_factor,
             "the warm-up starts at this × rate; -1: at the small batch's rate with linear_scaling, else at 0")
      .at_least(kSmallBatchRate)
      .at_most(1);
  section.field("milestones", milestones, "multi_step: epochs at which the rate is multiplied by gamma").at_least(0);
  section.field("step_epochs", step_epochs, "step: epochs between two decays").above(0);
  section.field("gamma", gamma, "step, multi_step: factor of a decay").above(0).at_most(1);
  section.field("power", power, "polynomial: power").above(0);
  section.field("initial_factor", initial_factor, "one_cycle: the rate starts at this × rate").at_least(0).at_most(1);
  section.field("final_factor", final_factor, "polynomial, cosine, one_cycle: the rate ends at this × rate").at_least(0).at_most(1);
  section.field("peak_epoch", peak_epoch, "one_cycle: epoch of the highest rate; 0: after 30% of the run").at_least(0);
  section.field("points_epoch", points_epoch, "piecewise: epochs of the points").at_least(0);
  section.field("points_factor", points_factor, "piecewise: factors of the rate at the points").at_least(0);
  section.field("linear_scaling", linear_scaling, "multiply the rate by batch / base_batch");
  section.field("base_batch", base_batch, "linear_scaling: the batch that the rate was tuned for").at_least(1);
  section.field("batch_milestones", batch_milestones, "epochs at which the batch is multiplied by batch_factor").at_least(0);
  section.field("batch_factor", batch_factor, "growth of the batch at a milestone").above(1);
  section.field("largest_batch", largest_batch, "limit on the growing batch, past which the rate falls instead; 0: none").at_least(0);
}

void validate(const ScheduleConfig& config) {
  find(schedules(), "schedule", config.name);
  require_ascending("milestones", config.milestones);
  require_ascending("batch_milestones", config.batch_milestones);
  require_ascending("points_epoch", config.points_epoch);
  const auto require = [](bool holds, const char* key, const char* expected, double actual) {
    if (!holds) throw ConfigError(fmt::format("schedule.{} must be {}, not {}", key, expected, actual));
  };
  require(config.warmup_epochs >= 0, "warmup_epochs", "at least 0", config.warmup_epochs);
  require(config.step_epochs > 0, "step_epochs", "above 0", config.step_epochs);
  require(config.batch_factor > 1, "batch_factor", "above 1", config.batch_factor);
  require(config.base_batch >= 1, "base_batch", "at least 1", static_cast<double>(config.base_batch));
  require(config.largest_batch >= 0, "largest_batch", "at least 0", static_cast<double>(config.largest_batch));
  if (config.points_epoch.size() != config.points_factor.size())
    throw ConfigError(fmt::format("schedule.points_epoch and schedule.points_factor must be equally long, not {} and {}",
                                  config.points_epoch.size(), config.points_factor.size()));
  if (config.name == "piecewise" && config.points_epoch.empty())
    throw ConfigError("schedule piecewise needs points: set schedule.points_epoch and schedule.points_factor");
  if (config.name == "multi_step" && config.milestones.empty())
    throw ConfigError("schedule multi_step needs schedule.milestones, for example [30, 60, 80]");
}

double learning_rate(const ScheduleConfig& config, double base_rate, std::int64_t batch, const Progress& progress) {
  const Growth grown = growth(config, batch, std::floor(progress.epoch));  // the batch changes between epochs
  if (!(progress.epochs > 0)) throw ConfigError(fmt::format("a run must have more than 0 epochs, not {}", progress.epochs));
  const double scaling = config.linear_scaling ? static_cast<double>(batch) / static_cast<double>(config.base_batch) : 1;
  const double factor = find(schedules(), "schedule", config.name).make(config, progress);
  return base_rate * scaling * factor * warmup(config, scaling, progress.epoch) * (grown.reached / grown.wanted);
}

std::int64_t batch_at(const ScheduleConfig& config, std::int64_t batch, std::int64_t epoch) {
  return std::llround(growth(config, batch, static_cast<double>(epoch)).reached);
}

}  // namespace paceline::optim
