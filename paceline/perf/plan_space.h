// The planner's search space: every mesh of this many workers, and the settings for it.
#pragma once

#include <optional>

#include "paceline/perf/plan.h"

namespace paceline::perf {

/// Divisors, ascending.
std::vector<std::int64_t> divisors_of(std::int64_t number);

/// Meshes that can divide the network and the batch; of `program`, only data, pipeline and tensor are set. The tensor axis stays inside a
/// host, unless the question fixes its size or nothing fits otherwise.
std::vector<Choice> meshes(const PlanQuestion& question);
/// The same, including tensor axes across hosts in any case.
std::vector<Choice> all_meshes(const PlanQuestion& question);

/// The choices on a mesh: ZeRO stages, micro-batches, pipeline schedules, shared layers. Recomputation is not among them: it only costs
/// time, so the least recomputation that fits is best (kRecompute).
std::vector<Choice> choices_on(const PlanQuestion& question, const Choice& mesh);
/// The choices among these that save the most memory.
std::vector<Choice> frugal_choices_on(const PlanQuestion& question, const Choice& mesh);
inline constexpr const char* kRecompute[] = {"none", "units", "all"};

/// The same choice with another way to send gradients; nullopt if a run would refuse it.
std::optional<Choice> with_wire(const Choice& choice, const OtherWire& wire);

/// The same choice with other buckets.
std::vector<Choice> with_buckets(const Choice& choice);

/// Whether the pipeline computes weight gradients later than input gradients.
bool puts_off_weights(const schedule::ProgramSettings& program);

memory::Plan memory_plan(const PlanQuestion& question, const Choice& choice);
/// The memory of the rank that needs the most.
std::int64_t bytes_needed(const PlanQuestion& question, const memory::Estimator& network, const Choice& choice);
/// The memory of a device.
std::int64_t memory_limit(const PlanQuestion& question);

}  // namespace paceline::perf
