// A choice's step programs, and those of the same step with fewer micro-batches: written once, costed once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "paceline/perf/plan.h"

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
  /// Whether a step of fewer micro-batches can have them of the same size.
  bool has_shorter() const { return choice_.program.samples % choice_.program.micro_batches == 0; }
  /// ConfigError where the strategy cannot do it.
  const Step& with(std::int64_t micro_batches);
  const Step& whole() { return with(choice_.program.micro_batches); }
  /// It has every kind of message that the whole one has.
  const Step& shortest();

  /// Whether another choice's step is the same: it has the same settings, or differs in ZeRO's stage alone, and the programs do not show
  /// it (stages 1 and 2 of a pipeline). `by_stage`: the stage has a cost beside the programs'.
  bool same_as(PlanSteps& other, bool by_stage);

  /// By `cost`, once for a part of the cluster that is faster ("": none), a number of micro-batches, and with or without splits.
  const StepCost& cost(const std::string& part, std::int64_t micro_batches, bool splits, const std::function<StepCost()>& cost);

 private:
  Choice choice_;
  Write write_;
  std::map<std::int64_t, Step> written_;
  std::map<std::tuple<std::string, std::int64_t, bool>, StepCost> costs_;
};

}  // namespace paceline::perf
