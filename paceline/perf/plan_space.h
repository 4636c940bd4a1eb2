// What the planner looks at: every way to lay so many workers out, and the settings that go with it.
#pragma once

#include <optional>

#include "paceline/perf/plan.h"

namespace paceline::perf {

/// Divisors, ascending.
std::vector<std::int64_t> divisors_of(std::int64_t number);

/// Meshes on which the workers share the network and divide the batch; `program` has data, pipeline and tensor alone. The tensor axis stays
/// inside a host, unless the question fixes its size, or nothing fits a device otherwise.
std::vector<Choice> meshes(const PlanQuestion& question);
/// The same with a tensor axis across hosts, whether something fits otherwise or not.
std::vector<Choice> all_meshes(const PlanQuestion& question);

/// What is tried on a mesh: stages of ZeRO's, micro-batches, pipeline schedules, shared layers. Recomputation is left out: it costs time
/// and nothing else, so the least of it that fits is best (kRecompute).
std::vector<Choice> choices_on(const PlanQuestion& question, const Choice& mesh);
/// Of these, those with everything that saves memory.
std::vector<Choice> frugal_choices_on(const PlanQuestion& question, const Choice& mesh);
inline constexpr const char* kRecompute[] = {"none", "units", "all"};

/// The same with gradients that travel otherwise; nothing where a run refuses it.
std::optional<Choice> with_wire(const Choice& choice, const OtherWire& wire);

/// The same with other buckets.
std::vector<Choice> with_buckets(const Choice& choice);

/// Whether its pipeline computes gradients of weights later than those of inputs.
bool puts_off_weights(const schedule::ProgramSettings& program);

memory::Plan memory_plan(const PlanQuestion& question, const Choice& choice);
/// Of the rank that needs most.
std::int64_t bytes_needed(const PlanQuestion& question, const memory::Estimator& network, const Choice& choice);
/// Of a device.
std::int64_t memory_limit(const PlanQuestion& question);

}  // namespace paceline::perf
