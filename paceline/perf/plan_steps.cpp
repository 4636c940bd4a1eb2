#include "paceline/perf/plan_steps.h"

#include <algorithm>
#include <utility>

namespace paceline::perf {

PlanSteps::PlanSteps(const Choice& choice, Write write) : choice_(choice), write_(std::move(write)) {}

const PlanSteps::Step& PlanSteps::with(std::int64_t micro_batches) {
  if (const auto found = written_.find(micro_batches); found != written_.end()) return found->second;
  Step step{choice_, {}};
  schedule::ProgramSettings& program = step.choice.program;
  if (micro_batches != program.micro_batches) program.samples = program.samples / program.micro_batches * micro_batches;
  program.micro_batches = micro_batches;
  step.programs = write_(step.choice);
  return written_.emplace(micro_batches, std::move(step)).first->second;
}

const PlanSteps::Step& PlanSteps::shortest() {
  return has_shorter() ? with(std::min<std::int64_t>(2 * choice_.program.pipeline, choice_.program.micro_batches)) : whole();
}

bool PlanSteps::equals(const PlanSteps& other) const {
  const schedule::ProgramSettings &own = choice_.program, &others = other.choice_.program;
  // Few choices agree in these, which are quick to compare.
  if (own.data != others.data || own.pipeline != others.pipeline || own.micro_batches != others.micro_batches) return false;
  return settings_of(other.choice_) == settings_of(choice_) && other.choice_.moments == choice_.moments &&
         others.wire_bytes == own.wire_bytes && others.stages == own.stages;
}

bool PlanSteps::same_as(PlanSteps& other, bool by_stage) {
  if (equals(other)) return true;
  if (by_stage) return false;
  PlanSteps alike(other.choice_, write_);
  alike.choice_.program.zero = choice_.program.zero;
  return equals(alike) && shortest().programs == other.shortest().programs;
}

const StepCost& PlanSteps::cost(const std::string& part, std::int64_t micro_batches, bool splits, const std::function<StepCost()>& cost) {
  const std::tuple key(part, micro_batches, splits);
  if (const auto found = costs_.find(key); found != costs_.end()) return found->second;
  return costs_.emplace(key, cost()).first->second;
}

}  // namespace paceline::perf
