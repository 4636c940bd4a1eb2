// Plays the step programs of all stages with given durations: when each action begins and ends, and what it waited for.
//
// An action begins once the one before it on its lane and those in `after` have ended; a receive ends when its send has. While a lane of
// collectives is busy, the compute lane is slower.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "paceline/schedule/program.h"

namespace paceline::perf {

struct PlayedAction {
  double begin = 0, end = 0;
  int because = -1;  // the action whose end let this one begin, numbered through all stages; −1: the step's beginning
};

struct Play {
  std::vector<PlayedAction> actions;  // of all stages, one after the other
  std::vector<int> first;             // by stage: its first action; the number of all actions at the end
  double seconds = 0;                 // until the last action ends

  int stage_of(int action) const;
};

/// If a host has more ranks than devices, the ranks take turns: each computes at a share of a device's speed while others compute as well,
/// and at full speed while they wait.
struct Turns {
  double stage_ranks = 1;  // of a stage, per host
  double devices = 1;      // of a host
  int stages = 1;          // per host
};

struct PlayOptions {
  double slowdown = 1;  // of computing during a collective
  std::optional<Turns> turns = {};
};

/// `durations`: of the actions of all stages, one after the other. ConfigError if an action never begins: a message that no stage sends, or
/// stages that wait for one another.
Play play(std::span<const schedule::Program> stages, std::span<const double> durations, const PlayOptions& options = {});

}  // namespace paceline::perf
