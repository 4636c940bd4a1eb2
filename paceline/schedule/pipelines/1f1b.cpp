// 1F1B (Narayanan et al., PipeDream-Flush, 2021): a stage that has sent as many micro-batches forward as there are stages from it to
// the end does one backward step before each further forward step. It idles as long as GPipe does, but keeps the activations of at most S −
// rank micro-batches.
#include <algorithm>

#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {
namespace one_forward_one_backward_steps {

int in_flight(const PipelineProblem& problem, int rank) { return std::min(problem.micro_batches, problem.stages - rank); }

PipelineSteps steps(const PipelineProblem& problem, int rank) {
  PipelineSteps list;
  int forward = 0;
  const auto go_forward = [&] { list.push_back({PipelineStep::Kind::forward, forward++, 0}); };
  while (forward < in_flight(problem, rank)) go_forward();
  for (int back = 0; back < problem.micro_batches; ++back) {
    list.push_back({PipelineStep::Kind::backward, back, 0});
    if (forward < problem.micro_batches) go_forward();
  }
  return list;
}

double idle(const PipelineProblem& problem, const PipelineCosts& costs) { return (problem.stages - 1) * costs.sum(); }

}  // namespace one_forward_one_backward_steps

PipelineSchedule one_forward_one_backward() {
  using namespace one_forward_one_backward_steps;
  return {steps, idle, in_flight, false};
}

}  // namespace paceline::schedule
