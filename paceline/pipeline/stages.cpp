#include "paceline/pipeline/stages.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Cuts units into stages by dynamic programming: best_[s][i] is the least cost of units [0, i) in s stages.
class Cutter {
 public:
  Cutter(const std::vector<UnitCost>& units, const schedule::PipelineProblem& problem, const MemoryLimit& memory)
      : count_(units.size()), stages_(static_cast<std::size_t>(problem.virtual_stages())), problem_(problem), memory_(memory) {
    for (const UnitCost& unit : units) {
      time_.push_back(time_.back() + unit.time);
      bytes_.push_back(bytes_.back() + unit.bytes);
      activations_.push_back(activations_.back() + unit.activation_bytes);
    }
  }

  /// The least time of the slowest stage; infinite where no cut fits.
  double fastest() {
    return solve([this](std::size_t first, std::size_t last) { return time(first, last); },
                 [](double before, double own) { return std::max(before, own); });
  }

  /// The most even of the cuts whose slowest stage takes no longer.
  std::vector<nn::Units> most_even(double slowest) {
    solve(
        [&](std::size_t first, std::size_t last) {
          const double own = time(first, last);
          return own > slowest ? kNever : own * own;
        },
        [](double before, double own) { return before + own; });
    std::vector<nn::Units> stages(stages_);
    std::size_t end = count_;
    for (std::size_t stage = stages_; stage-- > 0; end = stages[stage].first) stages[stage] = {from_[stage + 1][end], end};
    return stages;
  }

  /// What a rank needs for units [first, last) as this virtual stage.
  std::int64_t bytes(std::size_t stage, std::size_t first, std::size_t last) const {
    const std::size_t rank = stage % static_cast<std::size_t>(problem_.stages);
    const std::int64_t samples = memory_.samples.empty() ? 1 : memory_.samples.at(rank);
    return bytes_[last] - bytes_[first] + samples * (activations_[last] - activations_[first]);
  }

 private:
  double time(std::size_t first, std::size_t last) const { return time_[last] - time_[first]; }
  /// Each of a rank's chunks may have its part of what the rank may hold.
  bool fits(std::size_t stage, std::size_t first, std::size_t last) const {
    return memory_.bytes == 0 || bytes(stage, first, last) <= memory_.bytes / problem_.chunks;
  }

  template <class Cost, class Join>
  double solve(const Cost& cost, const Join& join) {
    best_.assign(stages_ + 1, std::vector<double>(count_ + 1, kNever));
    from_.assign(stages_ + 1, std::vector<std::size_t>(count_ + 1, 0));
    best_[0][0] = 0;
    for (std::size_t stage = 0; stage < stages_; ++stage)
      for (std::size_t last = stage + 1; last <= count_; ++last)
        for (std::size_t first = stage; first < last; ++first) {
          if (best_[stage][first] == kNever || !fits(stage, first, last)) continue;
          const double total = join(best_[stage][first], cost(first, last));
          if (total < best_[stage + 1][last]) best_[stage + 1][last] = total, from_[stage + 1][last] = first;
        }
    return best_[stages_][count_];
  }

  std::size_t count_, stages_;
  const schedule::PipelineProblem& problem_;
  const MemoryLimit& memory_;
  std::vector<double> time_{0};                          // of all units before
  std::vector<std::int64_t> bytes_{0}, activations_{0};  // the same
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<std::size_t>> from_;
};

[[noreturn]] void refuse_too_many(std::size_t units, const schedule::PipelineProblem& problem) {
  const auto most = static_cast<int>(units);
  const std::string wanted = problem.chunks > 1 ? fmt::format("parallel.pipeline={} with parallel.chunks={} makes {} stages",
                                                              problem.stages, problem.chunks, problem.virtual_stages())
                                                : fmt::format("parallel.pipeline={}", problem.stages);
  std::string nearest = fmt::format("parallel.pipeline={}", std::max(1, most / problem.chunks));
  if (problem.chunks > 1)
    nearest = problem.stages <= most ? fmt::format("parallel.chunks={}", most / problem.stages) : fmt::format("parallel.pipeline={}", most);
  throw ConfigError(
      fmt::format("{}, and the model has {} {} to cut between; use {} or fewer", wanted, units, units == 1 ? "unit" : "units", nearest));
}

}  // namespace

std::vector<nn::Units> cut_stages(const std::vector<UnitCost>& units, const schedule::PipelineProblem& problem, const MemoryLimit& memory) {
  if (units.size() < static_cast<std::size_t>(problem.virtual_stages())) refuse_too_many(units.size(), problem);
  Cutter cutter(units, problem, memory);
  const double slowest = cutter.fastest();
  if (slowest < kNever) return cutter.most_even(slowest);
  const MemoryLimit unlimited{.bytes = 0, .samples = memory.samples};
  Cutter without(units, problem, unlimited);
  const std::vector<nn::Units> stages = without.most_even(without.fastest());
  std::int64_t most = 0;
  std::size_t worst = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    if (const std::int64_t bytes = without.bytes(stage, stages[stage].first, stages[stage].last); bytes > most) most = bytes, worst = stage;
  throw ConfigError(fmt::format(
      "no cut into {} stages fits {} bytes a rank: stage {} from unit '{}' on needs {}; use more stages (parallel.pipeline), smaller "
      "micro-batches (train.micro_batches), or allow {} bytes",
      stages.size(), memory.bytes, worst, units[stages[worst].first].name, most, most * problem.chunks));
}

std::vector<nn::Units> held_by(const std::vector<nn::Units>& stages, int ranks, int rank) {
  std::vector<nn::Units> held;
  for (std::size_t stage = static_cast<std::size_t>(rank); stage < stages.size(); stage += static_cast<std::size_t>(ranks))
    held.push_back(stages[stage]);
  return held;
}

int resolve_chunks(const Entry<schedule::PipelineSchedule>& schedule, std::int64_t chunks) {
  if (chunks > 0) return static_cast<int>(chunks);
  return schedule.make.interleaved ? 2 : 1;
}

}  // namespace paceline::pipeline
