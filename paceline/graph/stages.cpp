#include "paceline/graph/stages.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "paceline/base/mesh_refusal.h"
#include "paceline/graph/units.h"

namespace paceline::graph {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kPasses = 3;       // a product is computed forward, and backward for its input and for its weight
constexpr double kMacsPerByte = 8;  // a byte of activations, written and read in both passes, takes about as long as this many products

/// Cuts units into stages by dynamic programming: best_[s][i] is the least cost of units [0, i) in s stages.
class Cutter {
 public:
  Cutter(const std::vector<UnitCost>& units, std::size_t stages, const StageFits& fits)
      : count_(units.size()), stages_(stages), fits_(fits) {
    for (const UnitCost& unit : units) time_.push_back(time_.back() + unit.time);
  }

  /// The least time of the slowest stage; infinite if no cut fits.
  double fastest() {
    return solve([this](const Units& units) { return time(units); }, [](double before, double own) { return std::max(before, own); });
  }

  /// The most even of the cuts whose slowest stage takes no longer than this.
  std::vector<Units> most_even(double slowest) {
    solve([&](const Units& units) { return time(units) > slowest ? kNever : time(units) * time(units); },
          [](double before, double own) { return before + own; });
    std::vector<Units> stages(stages_);
    std::size_t end = count_;
    for (std::size_t stage = stages_; stage-- > 0; end = stages[stage].first) stages[stage] = {from_[stage + 1][end], end};
    return stages;
  }

 private:
  double time(const Units& units) const { return time_[units.last] - time_[units.first]; }

  template <class Cost, class Join>
  double solve(const Cost& cost, const Join& join) {
    best_.assign(stages_ + 1, std::vector<double>(count_ + 1, kNever));
    from_.assign(stages_ + 1, std::vector<std::size_t>(count_ + 1, 0));
    best_[0][0] = 0;
    std::size_t least = 0, most = 0;  // units with which the stages so far can end
    for (std::size_t stage = 0; stage < stages_ && least <= most; ++stage) {
      std::size_t next_least = count_ + 1, next_most = 0;
      for (std::size_t last = least + 1; last + stages_ <= count_ + stage + 1; ++last) {  // at least one unit for each later stage
        double& best = best_[stage + 1][last];
        for (std::size_t first = std::min(last, most + 1); first-- > least;) {
          const double own = cost({first, last});
          if (own > best || own == kNever) break;  // more units would take even longer
          const double total = join(best_[stage][first], own);
          // Among equal cuts, the one whose last stage has the most units. The check whether it fits takes longest, so it comes last.
          if (total <= best && total < kNever && (!fits_ || fits_(stage, {first, last}))) best = total, from_[stage + 1][last] = first;
        }
        if (best < kNever) next_least = std::min(next_least, last), next_most = last;
      }
      least = next_least, most = next_most;
    }
    return best_[stages_][count_];
  }

  std::size_t count_, stages_;
  const StageFits& fits_;
  std::vector<double> time_{0};  // of all units before
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<std::size_t>> from_;
};

[[noreturn]] void refuse_too_many(std::size_t units, const StageCount& count) {
  const auto most = static_cast<int>(units);
  const std::string wanted =
      count.chunks > 1 ? fmt::format("parallel.pipeline={} with parallel.chunks={} makes {} stages", count.ranks, count.chunks, count.all())
                       : fmt::format("parallel.pipeline={}", count.ranks);
  const std::string problem =
      fmt::format("{}, but the model has only {} {} to cut between; use ", wanted, units, units == 1 ? "unit" : "units");
  if (count.chunks > 1 && count.ranks <= most) throw ConfigError(problem + fmt::format("at most parallel.chunks={}", most / count.ranks));
  throw MeshRefusal(problem, fmt::format("at most parallel.pipeline={}", most));
}

}  // namespace

std::vector<UnitCost> counted_costs(const Graph& graph) {
  std::vector<UnitCost> costs;
  for (const Unit& unit : units_of(graph)) {
    UnitCost& cost = costs.emplace_back(UnitCost{.name = unit.name});
    const double passes = costs.size() == 1 ? kPasses - 1 : kPasses;  // the sample itself needs no gradient
    for (std::size_t i = unit.first; i < unit.last; ++i) {
      const Layer& layer = graph.layers()[i];
      cost.time += passes * static_cast<double>(layer.macs) + kMacsPerByte * static_cast<double>(layer.activation_bytes);
    }
  }
  return costs;
}

std::vector<Units> cut_stages(const std::vector<UnitCost>& units, const StageCount& count, const StageFits& fits) {
  if (units.size() < count.all()) refuse_too_many(units.size(), count);
  Cutter cutter(units, count.all(), fits);
  const double slowest = cutter.fastest();
  return slowest < kNever ? cutter.most_even(slowest) : std::vector<Units>();
}

std::vector<Units> held_by(const std::vector<Units>& stages, int ranks, int rank) {
  std::vector<Units> held;
  for (auto stage = static_cast<std::size_t>(rank); stage < stages.size(); stage += static_cast<std::size_t>(ranks))
    held.push_back(stages[stage]);
  return held;
}

}  // namespace paceline::graph
