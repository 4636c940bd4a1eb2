// Where the time of a played stage went.
#pragma once

#include <unordered_map>

#include "paceline/perf/play.h"
#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// Adds the seconds of an action on the compute lane to the part of a step that it belongs to.
void add_to(Split& split, const schedule::Action& action, double seconds);

/// Adds `weight` times the other split.
void add_share(Split& sum, const Split& other, double weight);

/// What folded passes consist of, by their parts.
using FoldedSplits = std::unordered_map<const std::vector<schedule::Action>*, Split>;

/// What the stage's compute lane did and, while it was idle, what it waited for, found by following `because` backwards. The parts add up
/// to the seconds of the play.
Split split_of(const Play& play, std::span<const schedule::Program> stages, int stage, const FoldedSplits& folded = {});

}  // namespace paceline::perf
