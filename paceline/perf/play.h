// Plays the step programs of all stages by given durations: when each action begins and ends, and what it waited for.
//
// An action begins once the one before it on its lane and those in `after` have ended; a receive ends when its send has. While a lane of
// collectives is busy, what the compute lane computes is slower.
#pragma once

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

/// `durations`: of all stages' actions, one behind the other. ConfigError where an action never begins: a message that nobody sends, or
/// stages that wait for one another.
Play play(std::span<const schedule::Program> stages, std::span<const double> durations, double slowdown = 1);

}  // namespace paceline::perf
