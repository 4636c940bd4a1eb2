// Interleaved 1F1B (Narayanan et al., Megatron-LM, 2021): each rank has v chunks of the model, S virtual stages apart, so that a
// micro-batch passes every rank v times. Filling and emptying takes as many steps as in 1F1B, but each is a v-th as long:
// (S − 1)(F + B + W)/v of idle time, for v times as many messages and the activations of more micro-batches.
//
// Micro-batches go in groups of S: a group passes chunk 0, then chunk 1, …, and back in reverse order. If stages do not divide the
// micro-batches, the list is that of the next multiple without the micro-batches that do not exist; a list stays valid if all steps of a
// micro-batch are omitted on all ranks.
#include <algorithm>

#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {

PipelineSchedule one_forward_one_backward();  // 1f1b.cpp: what it is with one chunk
namespace interleaved_1f1b_steps {

struct Visit {
  int micro_batch = 0, chunk = 0;
};

/// The order in which micro-batches pass a rank's chunks.
std::vector<Visit> visits(const PipelineProblem& problem, bool back) {
  std::vector<Visit> order;
  for (int group = 0; group < problem.micro_batches; group += problem.stages)
    for (int turn = 0; turn < problem.chunks; ++turn)
      for (int micro_batch = group; micro_batch < group + problem.stages; ++micro_batch)
        order.push_back({micro_batch, back ? problem.chunks - 1 - turn : turn});
  return order;
}

/// Forward steps before the first backward step. The last rank must take the first micro-batch through all chunks; an earlier rank is two
/// steps further ahead for each rank between them, one for the way there and one for the way back.
int ahead(const PipelineProblem& problem, int rank) { return 2 * (problem.stages - 1 - rank) + (problem.chunks - 1) * problem.stages; }

PipelineSteps steps(const PipelineProblem& problem, int rank) {
  if (problem.chunks == 1) return one_forward_one_backward().steps(problem, rank);
  const std::vector<Visit> there = visits(problem, false), back = visits(problem, true);
  PipelineSteps list;
  const auto add = [&](PipelineStep::Kind kind, const Visit& visit) {
    if (visit.micro_batch < problem.micro_batches) list.push_back({kind, visit.micro_batch, visit.chunk});
  };
  std::size_t forward = 0;
  const auto warm_up = std::min(there.size(), static_cast<std::size_t>(ahead(problem, rank)));
  while (forward < warm_up) add(PipelineStep::Kind::forward, there[forward++]);
  for (const Visit& visit : back) {
    if (forward < there.size()) add(PipelineStep::Kind::forward, there[forward++]);
    add(PipelineStep::Kind::backward, visit);
  }
  return list;
}

double idle(const PipelineProblem& problem, const PipelineCosts& costs) { return (problem.stages - 1) * costs.sum() / problem.chunks; }

int in_flight(const PipelineProblem& problem, int rank) {
  if (problem.chunks == 1) return one_forward_one_backward().in_flight(problem, rank);
  return std::min(problem.micro_batches * problem.chunks, ahead(problem, rank) + 1);
}

}  // namespace interleaved_1f1b_steps

PipelineSchedule interleaved_1f1b() {
  using namespace interleaved_1f1b_steps;
  return {steps, idle, in_flight, true};
}

}  // namespace paceline::schedule
