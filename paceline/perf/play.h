// Plays the step programs of all stages by given durations: when each action begins and ends, and what it waited for.
//
// An action begins once the one before it on its lane and those in `after` have ended; a receive ends when its send has. While a lane of
// collectives is busy, what the compute lane computes is slower.
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
  std::vector<PlayedAction> actions;  // all stages', one behind the other
  std::vector<int> first;             // by stage, and the number of all at the end
  double seconds = 0;                 // until the last action ends

  int stage_of(int action) const;
};

/// Ranks that are more than the devices of their host take turns on them, so that each computes at its part of a device's speed while
/// others compute as well, and at full speed while they wait.
struct Turns {
  double stage_ranks = 1;  // of a stage on a host
  double devices = 1;      // of a host
  int stages = 1;          // of a host, beside one another
};

struct PlayOptions {
  double slowdown = 1;  // of computing beside a collective
  std::optional<Turns> turns = {};
};

/// `durations`: of all stages' actions, one behind the other. ConfigError if an action never begins: a message that no stage sends, or
/// stages that wait for one another.
Play play(std::span<const schedule::Program> stages, std::span<const double> durations, const PlayOptions& options = {});

}  // namespace paceline::perf
