// A pipeline schedule is a pure function too: from stages and micro-batches to one rank's ordered list of steps. `pipeline` runs the list
// with a model, `perf` costs it, and play() plays all ranks of it with given costs (pipeline_play.h).
//
// The model is cut into stages · chunks virtual stages, one behind the other; virtual stage s is chunk s / stages of rank s % stages. A
// step computes one micro-batch on one of them. What it needs from another rank, and what it hands on, follows from the step alone:
// received() and sent(). Messages of one border and direction leave and arrive in the order of their micro-batches, so lists deadlock
// nowhere as long as a send does not wait for its receive; play() finds it where one would.
//
// On every virtual stage micro-batches go forward in ascending order and back in ascending order. So gradients are added up, and running
// statistics follow each other, as on one worker with the same micro-batches: the bits are the same.
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
  int chunks = 1;         // parts of the model that each rank has; more than one in interleaved schedules alone

  int virtual_stages() const { return stages * chunks; }
  bool operator==(const PipelineProblem&) const = default;
};

struct PipelineStep {
  enum class Kind : std::uint8_t {
    forward,
    backward,          // gradients of inputs and weights
    backward_input,    // of inputs alone: what the stage before waits for
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
/// Whether what the forward pass kept for this micro-batch may go after the step.
constexpr bool frees(PipelineStep::Kind kind) {
  return kind == PipelineStep::Kind::backward || kind == PipelineStep::Kind::weight_gradients;
}
/// "forward", …
std::string_view name_of(PipelineStep::Kind kind);

/// What crosses from one rank to another: the activations, or their gradients, of one micro-batch between virtual stages border and border
/// + 1.
struct PipelineMessage {
  int peer = 0;
  int border = 0;
  int micro_batch = 0;
  bool gradients = false;
  bool operator==(const PipelineMessage&) const = default;
};
/// What a step waits for, and what it hands on; nothing at the ends of the model, or where one rank has both sides of the border.
std::optional<PipelineMessage> received(const PipelineProblem& problem, int rank, const PipelineStep& step);
std::optional<PipelineMessage> sent(const PipelineProblem& problem, int rank, const PipelineStep& step);

/// Seconds of one micro-batch on one rank, all its chunks together, where all ranks need the same.
struct PipelineCosts {
  double forward = 1, input_gradients = 1, weight_gradients = 1;
  double sum() const { return forward + input_gradients + weight_gradients; }
};

/// One schedule: its lists, and closed formulas that a test holds against their play. They are for stages that cost the same, transfers
/// that cost nothing and weight gradients that cost no more than each of the other two. Throws ConfigError for a problem that cannot be.
struct PipelineSchedule {
  PipelineSteps (*steps)(const PipelineProblem& problem, int rank) = nullptr;
  /// How long each rank idles in a step. Of interleaved schedules: where stages divide the micro-batches.
  double (*idle)(const PipelineProblem& problem, const PipelineCosts& costs) = nullptr;
  /// Micro-batches of one chunk that have gone forward and not yet all the way back on this rank, at most. The same condition.
  int (*in_flight)(const PipelineProblem& problem, int rank) = nullptr;
  bool interleaved = false;  // takes more than one chunk
};

std::span<const Entry<PipelineSchedule>> pipelines();
/// The number of chunks where a recipe leaves it open (0): two where the schedule takes several, otherwise one.
int resolve_chunks(const Entry<PipelineSchedule>& schedule, std::int64_t chunks);
/// The steps of one rank, after a check of the problem. ConfigError says what would do.
PipelineSteps steps_of(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, int rank);
void check(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem);
/// The share of its time that a rank idles, by the formula: idle / (idle + busy).
double bubble_share(const PipelineSchedule& schedule, const PipelineProblem& problem, const PipelineCosts& costs);

}  // namespace paceline::schedule
