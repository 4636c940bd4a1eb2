#include "paceline/schedule/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace paceline::schedule {

using Kind = PipelineStep::Kind;

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"forward", "backward", "backward_input", "weight_gradients"};
  return kNames[static_cast<int>(kind)];
}

namespace {

/// The message between two neighbouring virtual stages, as seen by a rank that has one of them.
std::optional<PipelineMessage> across(const PipelineProblem& problem, int other, int border, const PipelineStep& step, bool gradients) {
  if (other < 0 || other >= problem.virtual_stages() || problem.stages == 1) return std::nullopt;
  return PipelineMessage{.peer = other % problem.stages, .border = border, .micro_batch = step.micro_batch, .gradients = gradients};
}

}  // namespace

std::optional<PipelineMessage> received(const PipelineProblem& problem, int rank, const PipelineStep& step) {
  const int stage = step.chunk * problem.stages + rank;
  if (step.kind == Kind::forward) return across(problem, stage - 1, stage - 1, step, false);
  if (goes_back(step.kind)) return across(problem, stage + 1, stage, step, true);
  return std::nullopt;
}

std::optional<PipelineMessage> sent(const PipelineProblem& problem, int rank, const PipelineStep& step) {
  const int stage = step.chunk * problem.stages + rank;
  if (step.kind == Kind::forward) return across(problem, stage + 1, stage, step, false);
  if (goes_back(step.kind)) return across(problem, stage - 1, stage - 1, step, true);
  return std::nullopt;
}

int resolve_chunks(const Entry<PipelineSchedule>& schedule, std::int64_t chunks) {
  if (chunks > 0) return static_cast<int>(chunks);
  return schedule.make.interleaved ? 2 : 1;
}

bool puts_off_weights(const PipelineSchedule& schedule, int chunks) {
  const PipelineSteps steps = schedule.steps({.stages = 2, .micro_batches = 2, .chunks = chunks}, 0);
  return std::ranges::find(steps, PipelineStep::Kind::weight_gradients, &PipelineStep::kind) != steps.end();
}

void check(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem) {
  if (problem.stages < 1 || problem.micro_batches < 1 || problem.chunks < 1)
    throw ConfigError(fmt::format("a pipeline of {} stages with {} micro-batches and {} chunks: each must be at least 1", problem.stages,
                                  problem.micro_batches, problem.chunks));
  if (problem.chunks > 1 && !schedule.make.interleaved)
    throw ConfigError(
        fmt::format("pipeline schedule '{}' gives each rank one part of the model, not {} chunks; use interleaved_1f1b, or 1 chunk",
                    schedule.key, problem.chunks));
}

PipelineSteps steps_of(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, int rank) {
  check(schedule, problem);
  if (rank < 0 || rank >= problem.stages)
    throw ConfigError(fmt::format("rank {} of a pipeline of {} stages; ranks are 0 to {}", rank, problem.stages, problem.stages - 1));
  return schedule.make.steps(problem, rank);
}

double bubble_share(const PipelineSchedule& schedule, const PipelineProblem& problem, const PipelineCosts& costs) {
  const double idle = schedule.idle(problem, costs);
  return idle / (idle + problem.micro_batches * costs.sum());
}

}  // namespace paceline::schedule
