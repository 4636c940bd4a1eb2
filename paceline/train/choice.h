// How a comparison chooses a point of an algorithm's grid: by the error on held-out training samples, never by the test set.
#pragma once

#include "paceline/train/entrants.h"

namespace paceline::train {

struct Tried {
  std::vector<std::string> point;
  double error = NAN;  // mean over the tuning seeds, in %; not a number where any of them diverged
  bool added = false;  // beyond the grid that the recipe has (compare.widen)
};

struct Choice {
  Contestant contestant;           // with the chosen point
  std::vector<Tried> tried;        // in the order of the grid, then what was added to it
  std::vector<std::string> edges;  // keys whose chosen value is the least or the largest: a wider grid might have had a better one
  bool all_diverged = false;       // there was nothing to choose by, and it has the first point
};

/// `outcomes`: those of the tuning runs, of any algorithms. The first of equals is chosen.
Choice choose(const Entrant& entrant, const std::vector<Outcome>& outcomes);

/// What to add to a grid at whose edge the choice lies: on each such axis the next value on that side, by the ratio of the last two, with
/// all values of the other axes. Where every point diverged: smaller rates. Empty if there is nothing to add.
std::vector<std::vector<std::string>> points_beyond(const Entrant& entrant, const Choice& choice);

}  // namespace paceline::train
