// Simulates a pipeline schedule: when each step of each rank begins and ends, with given costs of steps and transfers. A rank executes its
// steps in order, and waits for what a step receives, but never for what it sends.
#pragma once

#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {

/// Seconds of one micro-batch on one virtual stage.
struct StageCosts {
  double forward = 1, input_gradients = 1, weight_gradients = 1;
  double of(PipelineStep::Kind kind) const;
};

struct TimedStep {
  PipelineStep step;
  double begin = 0, end = 0;
};

struct PipelinePlay {
  std::vector<std::vector<TimedStep>> ranks;  // in the order of their lists
  double makespan = 0;                        // until the last rank is done
  double bubble = 0;                          // the share of it that ranks idle, on average
  std::vector<int> in_flight;                 // by rank: the most micro-batches of one chunk that are forward but not completely backward
  std::int64_t messages = 0;                  // between ranks
};

/// `stages`: by virtual stage. `transfer`: from the end of a step until what it sent can be used by another rank. InternalError if ranks
/// would wait for each other forever.
PipelinePlay play(const std::vector<PipelineSteps>& lists, const PipelineProblem& problem, const std::vector<StageCosts>& stages,
                  double transfer = 0);
/// All ranks' lists of a schedule whose stages cost the same; in an interleaved one, a chunk costs its share.
PipelinePlay play(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, const PipelineCosts& costs, double transfer = 0);

}  // namespace paceline::schedule
