// A choice's step programs, and those of the same step with fewer micro-batches; each is written once and costed once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "paceline/perf/plan.h"
#include "paceline/perf/played_step.h"

namespace paceline::perf {

class PlanSteps {
 public:
  struct Step {
    Choice choice;
    std::vector<schedule::Program> programs;
  };
  using Write = std::function<std::vector<schedule::Program>(const Choice&)>;

  PlanSteps(const Choice& choice, Write write);

  const Choice& choice() const { return choice_; }
  /// Whether a step with fewer micro-batches can have micro-batches of the same size.
  bool has_shorter() const { return choice_.program.samples % choice_.program.micro_batches == 0; }
  /// ConfigError if the strategy does not support the choice.
  const Step& with(std::int64_t micro_batches);
  const Step& whole() { return with(choice_.program.micro_batches); }
  /// The shortest step that has every kind of message of the whole one.
  const Step& shortest();

  /// Whether the choices are equal in everything that determines a step and its cost.
  bool equals(const PlanSteps& other) const;
  /// Whether another choice has the same step: its settings are equal, or differ only in the ZeRO stage while the programs are the same
  /// (stages 1 and 2 with a pipeline). `by_stage`: the ZeRO stage has costs beyond those of the programs.
  bool same_as(PlanSteps& other, bool by_stage);

  /// The result of `cost`, which is called once for each faster part of the cluster ("": none), number of micro-batches, and with or
  /// without splits.
  const StepCost& cost(const std::string& part, std::int64_t micro_batches, bool splits, const std::function<StepCost()>& cost);

  /// The plays that `cost` needed, by the faster part of the cluster.
  CostModel::Plays& plays(const std::string& part) { return plays_[part]; }
  /// Frees the programs, which are written again if they are needed.
  void forget_programs() { written_.clear(); }

 private:
  Choice choice_;
  Write write_;
  std::map<std::int64_t, Step> written_;
  std::map<std::tuple<std::string, std::int64_t, bool>, StepCost> costs_;
  std::map<std::string, CostModel::Plays> plays_;
};

}  // namespace paceline::perf
