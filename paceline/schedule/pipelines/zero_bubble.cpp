// ZB-H1 (Qi et al., "Zero bubble pipeline parallelism", 2024): 1F1B whose backward pass is split. The stage before waits for the gradients
// of inputs (B) alone, so those of weights (W) are put off to where the rank would idle: rank r makes them r micro-batches late, and one
// after each B while the pipeline empties. A rank then keeps S micro-batches in some form, as 1F1B's first one does.
//
// The last S − 1 weight gradients of the first rank are all that fills no bubble: (S − 1)(F + B − W) of idle time. With fewer micro-batches
// than stages there are fewer to fill it with.
#include <algorithm>

#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {
namespace zero_bubble_steps {

PipelineSteps steps(const PipelineProblem& problem, int rank) {
  const int all = problem.micro_batches;
  PipelineSteps list;
  int forward = 0, weights = 0;
  const auto go_forward = [&] { list.push_back({PipelineStep::Kind::forward, forward++, 0}); };
  const auto make_weights = [&] { list.push_back({PipelineStep::Kind::weight_gradients, weights++, 0}); };
  while (forward < std::min(all, problem.stages - rank)) go_forward();
  for (int back = 0; back < all; ++back) {
    list.push_back({PipelineStep::Kind::backward_input, back, 0});
    const bool empties = forward == all;
    if (empties || back - weights >= rank) make_weights();
    if (!empties) go_forward();
  }
  while (weights < all) make_weights();
  return list;
}

double idle(const PipelineProblem& problem, const PipelineCosts& costs) {
  const int filled = std::min(problem.stages, problem.micro_batches) - 1;
  return (problem.stages - 1) * (costs.forward + costs.input_gradients) - filled * costs.weight_gradients;
}

int in_flight(const PipelineProblem& problem, int) { return std::min(problem.micro_batches, problem.stages); }

}  // namespace zero_bubble_steps

PipelineSchedule zero_bubble() {
  using namespace zero_bubble_steps;
  return {steps, idle, in_flight, false};
}

}  // namespace paceline::schedule
