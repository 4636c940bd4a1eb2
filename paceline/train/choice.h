// How a comparison chooses a point of an algorithm's grid: by the error on held-out training samples, never by the test set.
#pragma once

#include "paceline/train/entrants.h"

namespace paceline::train {

struct Tried {
  std::vector<std::string> point;
  double error = NAN;  // in percent, mean over the tuning seeds; NaN if any of them diverged
  bool added = false;  // beyond the recipe's grid (compare.widen)
};

struct Choice {
  Contestant contestant;           // with the chosen point
  std::vector<Tried> tried;        // in the order of the grid, followed by added points
  std::vector<std::string> edges;  // keys whose chosen value is the smallest or the largest: a wider grid might have a better one
  bool all_diverged = false;       // there was nothing to choose from, so the first point was taken
};

/// `outcomes`: those of the tuning runs, of any algorithms. Among equal points, the first is chosen.
Choice choose(const Entrant& entrant, const std::vector<Outcome>& outcomes);

/// The points to add to a grid at whose edge the choice lies: on each such axis the next value on that side, by the ratio of the last two,
/// combined with all values of the other axes. If every point diverged: smaller rates. Empty if there is nothing to add.
std::vector<std::vector<std::string>> points_beyond(const Entrant& entrant, const Choice& choice);

}  // namespace paceline::train
