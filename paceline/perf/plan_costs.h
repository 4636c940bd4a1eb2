// The costs of choices on a cluster, and on the same cluster with one part twice as fast. Caches what many choices have in common: the
// times of passes, the network as step programs see it, the cuts into stages, the costs of collectives.
#pragma once

#include <list>
#include <map>
#include <set>
#include <tuple>

#include "paceline/perf/plan.h"
#include "paceline/perf/plan_steps.h"

namespace paceline::perf {

class PlanCosts {
 public:
  explicit PlanCosts(const PlanQuestion& question);
  ~PlanCosts();

  /// The plan with the stages of its pipeline and the memory of the rank that needs the most; nullopt if it does not fit.
  std::optional<Plan> fitted(Choice choice) const;
  /// A lower bound of the seconds of such a choice: computation, exchanges of the tensor axis, and half the bubble of equal stages or,
  /// without a pipeline, the time that the last gradients need after the passes.
  double bound(const Choice& choice) const;
  /// The same once the stages are known: for each stage, its own work, the way of one micro-batch to it and back, and the time that the
  /// last gradients need after the passes. It is cheap to compute, and a search need not play the choices that it excludes.
  double bound(const Plan& fitted) const;
  /// An estimate of a step's seconds from two steps with fewer micro-batches: once a pipeline has filled, each micro-batch takes as long as
  /// the previous one. Nullopt if there are only a few of them, or if measured steps are more reliable.
  std::optional<double> estimate(const Plan& fitted) const;
  /// The seconds of the same step with only as many micro-batches as are needed to include everything that happens once per step.
  double short_seconds(const Plan& fitted) const;
  /// Fills in only the seconds of the cost, by which plans are ranked; their breakdown takes longer. ConfigError as below.
  void add_seconds(Plan& plan) const;
  /// Fills in the cost and all that follows from it. ConfigError if the strategy does not support the choice.
  void add_cost(Plan& plan) const;
  void add_gains(Plan& plan) const;

  std::vector<schedule::Program> programs(const Choice& choice) const;

 private:
  struct Variant;  // the cluster, or the cluster with one part twice as fast
  /// The model of the cluster itself.
  const CostModel& model() const;
  const ComputeTimes& times_of(const Choice& choice) const;
  const PlanStrategy& strategy_of(const Choice& choice) const;
  PlanSteps& steps_of(const Choice& choice) const;
  CostOptions options_of(const Choice& choice, bool splits) const;
  StepCost model_cost(const Variant& variant, PlanSteps& steps, std::int64_t micro_batches, bool splits) const;
  /// The cost, corrected by measured runs of this kind; `splits`: with a breakdown of the seconds.
  StepCost cost(const Variant& variant, const Choice& choice, bool splits) const;
  /// Derives the cost from shorter steps, if that saves time (played_step.h).
  std::optional<StepCost> cost_of_longer(const Variant& variant, PlanSteps& steps, bool splits) const;
  double correction(const Choice& choice) const;
  const schedule::ProgramModel& model_of(const Choice& choice) const;
  double pass_seconds(const Choice& choice, std::int64_t samples, bool recomputes) const;
  double seconds_of(const Choice& choice, schedule::Action::Work work, int first, int last, std::int64_t samples) const;
  /// A lower bound of the time that these units' gradients need after the passes: exchange, update, gathering of parameters.
  double closing_seconds(const Choice& choice, const std::vector<int>& held) const;
  /// A lower bound of the tensor axis's exchanges in a forward and backward pass of units [first, last), as far as launches do not hide
  /// them.
  double tensor_seconds(const Choice& choice, int first, int last, std::int64_t samples) const;

  const PlanQuestion& question_;
  memory::Estimator memory_;
  std::vector<std::unique_ptr<Variant>> variants_;  // the first is the cluster itself
  int units_ = 0;
  mutable std::map<std::tuple<int, bool, std::string, int>, schedule::ProgramModel> models_;
  mutable std::map<std::tuple<int, bool, std::int64_t>, std::vector<double>> exchanges_;  // of units [0, i)
  mutable std::map<std::tuple<int, int, int, int, int, double, std::string, std::string, int>, std::pair<std::int64_t, double>>
      closings_;  // of all
  mutable std::map<std::vector<std::string>, double> corrections_;
  mutable std::list<std::unique_ptr<PlanSteps>> steps_;   // of the last choices, the latest first
  mutable std::set<std::vector<std::string>> too_large_;  // choices that send gradients as they are
};

}  // namespace paceline::perf
