// GPipe (Huang et al., 2019): all micro-batches go forward, then all go backward. The simplest schedule, and the one that keeps most: the
// activations of every micro-batch. The first stage waits while the last S − 1 stages fill and empty: (S − 1)(F + B + W) of idle time.
#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {
namespace gpipe_steps {

PipelineSteps steps(const PipelineProblem& problem, int) {
  PipelineSteps list;
  for (const auto kind : {PipelineStep::Kind::forward, PipelineStep::Kind::backward})
    for (int micro_batch = 0; micro_batch < problem.micro_batches; ++micro_batch) list.push_back({kind, micro_batch, 0});
  return list;
}

double idle(const PipelineProblem& problem, const PipelineCosts& costs) { return (problem.stages - 1) * costs.sum(); }

int in_flight(const PipelineProblem& problem, int) { return problem.micro_batches; }

}  // namespace gpipe_steps

PipelineSchedule gpipe() {
  using namespace gpipe_steps;
  return {steps, idle, in_flight, false};
}

}  // namespace paceline::schedule
