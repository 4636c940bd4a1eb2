// A pipeline schedule is a pure function too: from stages and micro-batches to one rank's ordered list of steps. `pipeline` runs the list
// with a model, `perf` costs it, and play() simulates all ranks with given costs (pipeline_play.h).
//
// The model is cut into stages · chunks consecutive virtual stages; virtual stage s is chunk s / stages of rank s % stages. A
// step computes one micro-batch on one of them. What it needs from another rank, and what it passes on, follows from the step itself:
// received() and sent(). Messages of one border and direction are sent and received in the order of their micro-batches, so lists cannot
// deadlock as long as a send does not wait for its receive; play() would find a deadlock.
//
// On every virtual stage, micro-batches go forward in ascending order and backward in ascending order. So gradients are added, and running
// statistics updated, in the same order as on one worker with the same micro-batches: the bits are the same.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "paceline/base/registry.h"

namespace paceline::schedule {

struct PipelineProblem {
  int stages = 1;         // ranks
  int micro_batches = 1;  // of a step
  int chunks = 1;         // parts of the model that each rank has; more than one only in interleaved schedules

  int virtual_stages() const { return stages * chunks; }
  bool operator==(const PipelineProblem&) const = default;
};

struct PipelineStep {
  enum class Kind : std::uint8_t {
    forward,
    backward,          // gradients of inputs and weights
    backward_input,    // of inputs only, for which the previous stage waits
    weight_gradients,  // what backward_input put off
  };
  Kind kind = Kind::forward;
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const PipelineStep&) const = default;
};
using PipelineSteps = std::vector<PipelineStep>;

constexpr bool goes_back(PipelineStep::Kind kind) {
  return kind == PipelineStep::Kind::backward || kind == PipelineStep::Kind::backward_input;
}
/// Whether what the forward pass kept for this micro-batch may be freed after the step.
constexpr bool frees(PipelineStep::Kind kind) {
  return kind == PipelineStep::Kind::backward || kind == PipelineStep::Kind::weight_gradients;
}
/// "forward", …
std::string_view name_of(PipelineStep::Kind kind);

/// What one rank sends to another: the activations, or their gradients, of one micro-batch between virtual stages border and border
/// + 1.
struct PipelineMessage {
  int peer = 0;
  int border = 0;
  int micro_batch = 0;
  bool gradients = false;
  bool operator==(const PipelineMessage&) const = default;
};
/// What a step waits for, and what it passes on; nullopt at the ends of the model, or if one rank has both sides of the border.
std::optional<PipelineMessage> received(const PipelineProblem& problem, int rank, const PipelineStep& step);
std::optional<PipelineMessage> sent(const PipelineProblem& problem, int rank, const PipelineStep& step);

/// Seconds of one micro-batch on one rank, all its chunks together, if all ranks take the same time.
struct PipelineCosts {
  double forward = 1, input_gradients = 1, weight_gradients = 1;
  double sum() const { return forward + input_gradients + weight_gradients; }
};

/// One schedule: its lists, and closed formulas that a test compares with simulations. They are for stages that cost the same, transfers
/// that cost nothing and weight gradients that cost no more than each of the other two. Throws ConfigError for an impossible problem.
struct PipelineSchedule {
  PipelineSteps (*steps)(const PipelineProblem& problem, int rank) = nullptr;
  /// How long each rank idles in a step. For interleaved schedules: if stages divide the micro-batches.
  double (*idle)(const PipelineProblem& problem, const PipelineCosts& costs) = nullptr;
  /// The most micro-batches of one chunk that have gone forward, but not completely backward, on this rank. The same condition.
  int (*in_flight)(const PipelineProblem& problem, int rank) = nullptr;
  bool interleaved = false;  // takes more than one chunk
};

std::span<const Entry<PipelineSchedule>> pipelines();
/// The number of chunks if a recipe does not set it (0): two if the schedule supports several, otherwise one.
int resolve_chunks(const Entry<PipelineSchedule>& schedule, std::int64_t chunks);
/// The steps of one rank, after a check of the problem. ConfigError says what would work.
PipelineSteps steps_of(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, int rank);
void check(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem);
/// Whether it computes gradients of weights separately, after it has passed on those of inputs.
bool puts_off_weights(const PipelineSchedule& schedule, int chunks);
/// The share of its time that a rank idles, by the formula: idle / (idle + busy).
double bubble_share(const PipelineSchedule& schedule, const PipelineProblem& problem, const PipelineCosts& costs);

}  // namespace paceline::schedule
