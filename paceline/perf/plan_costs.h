// What choices cost on a cluster, and on the same cluster with one part twice as fast. Keeps what many choices have in common: the times
// of passes, the network as programs see it, the cuts into stages, the costs of collectives.
#pragma once

#include <map>
#include <tuple>

#include "paceline/perf/plan.h"
#include "paceline/perf/plan_steps.h"

namespace paceline::perf {

class PlanCosts {
 public:
  explicit PlanCosts(const PlanQuestion& question);
  ~PlanCosts();

  /// With the stages of its pipeline filled in, and the memory of the rank that needs most; nothing where it does not fit.
  std::optional<Plan> fitted(Choice choice) const;
  /// Seconds that no choice of this kind can fall below: computation, exchanges of the tensor axis, and half the bubble of equal stages, or
  /// without a pipeline what the last gradients still need.
  double bound(const Choice& choice) const;
  /// The same once the stages are known: of each, its own work, the way of one micro-batch there and back, and what the last gradients
  /// still need. Costs next to nothing, and a search need not play what it excludes.
  double bound(const Plan& fitted) const;
  /// About what a step will cost, from two steps of fewer micro-batches: behind a pipeline's beginning each takes as long as the one
  /// before. Nothing where there are few of them, or where steps that were run say more.
  std::optional<double> estimate(const Plan& fitted) const;
  /// Of the same step with only as many micro-batches as show what happens once a step.
  double short_seconds(const Plan& fitted) const;
  /// The seconds of the cost alone, by which plans are ranked; where they go takes longer to find out. ConfigError as below.
  void add_seconds(Plan& plan) const;
  /// Fills in what follows from the cost. ConfigError where the strategy cannot do it.
  void add_cost(Plan& plan) const;
  void add_gains(Plan& plan) const;

  std::vector<schedule::Program> programs(const Choice& choice) const;

 private:
  struct Variant;  // the cluster, or the cluster with one part twice as fast
  /// Of the cluster as it is.
  const CostModel& model() const;
  const ComputeTimes& times_of(const Choice& choice) const;
  const PlanStrategy& strategy_of(const Choice& choice) const;
  PlanSteps& steps_of(const Choice& choice) const;
  CostOptions options_of(const Choice& choice, bool splits) const;
  StepCost model_cost(const Variant& variant, const PlanSteps::Step& step, bool splits) const;
  /// As runs of this kind were off; `splits`: with where the seconds go.
  StepCost cost(const Variant& variant, const Choice& choice, bool splits) const;
  /// Derived from shorter steps, if that saves time (played_step.h).
  std::optional<StepCost> cost_of_longer(const Variant& variant, PlanSteps& steps, bool splits) const;
  double correction(const Choice& choice) const;
  const schedule::ProgramModel& model_of(const Choice& choice) const;
  double pass_seconds(const Choice& choice, std::int64_t samples, bool recomputes) const;
  double seconds_of(const Choice& choice, schedule::Action::Work work, int first, int last, std::int64_t samples) const;
  /// A lower bound of the end of a step for these units' gradients: exchange, update, gathering what was updated.
  double closing_seconds(const Choice& choice, const std::vector<int>& held) const;
  /// A lower bound of the tensor axis's exchanges in a forward and backward pass of units [first, last) that launches do not hide.
  double tensor_seconds(const Choice& choice, int first, int last, std::int64_t samples) const;

  const PlanQuestion& question_;
  memory::Estimator memory_;
  std::vector<std::unique_ptr<Variant>> variants_;  // the first is the cluster itself
  int units_ = 0;
  mutable std::map<std::tuple<int, bool, std::string, int>, schedule::ProgramModel> models_;
  mutable std::map<std::tuple<int, bool, std::int64_t>, std::vector<double>> exchanges_;  // of units [0, i)
  mutable std::map<std::tuple<int, int, int, int, int, std::string, std::string>, std::pair<std::int64_t, double>> closings_;  // of all
  mutable std::map<std::vector<std::string>, double> corrections_;
  mutable std::unique_ptr<PlanSteps> steps_;  // of the last choice
};

}  // namespace paceline::perf
