// What [compare] of a recipe says: which algorithms are compared, and from which settings each may choose.
//
// An algorithm is a strategy's name, or a label with settings:   "sgd; asgd; asgd, half rate: strategy.name=asgd optim.rate=0.05" A setting
// with several values is an axis of the algorithm's grid:   "lc: strategy.name=lc_asgd ps.lc_lambda=0.1|1" compare.grid has axes for all
// algorithms, except those that set the same key themselves. Clocks are written in the same form.
#pragma once

#include "paceline/train/outcome.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// One algorithm with this many workers by one clock.
struct Entrant {
  Contestant contestant;                              // without a point and a seed
  std::vector<std::vector<std::string>> points = {};  // of its grid, in the order of the axes; a single empty one if it has no grid
  std::size_t added = 0;                              // how many of these, at the end, lie beyond the recipe's grid

  bool chooses() const { return points.size() > 1; }
};

/// In the order of the report. "sgd" and "single" have one worker. ConfigError if an entry is invalid.
std::vector<Entrant> entrants(const CompareConfig& config);

}  // namespace paceline::train
