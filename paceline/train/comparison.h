// A comparison: algorithms × clocks × numbers of workers × seeds, each a run of its own in a folder of its own, so that what is done stays
// done. Algorithms with a grid (entrants.h) first run every point of it on held-out training samples, and then continue with the best;
// compare.widen adds points where the best lies at the edge.
#pragma once

#include <atomic>
#include <functional>

#include "paceline/train/choice.h"

namespace paceline::train {

/// The recipe of one run, whose folder will be `runs`/contestant.folder(). The recipe's data.batch is that of one worker. Of the slow
/// workers it has those that the run has; ConfigError if no run of the comparison has one. Plain SGD on one worker is charged for no
/// transfers by a virtual clock.
Recipe recipe_of(const Recipe& recipe, const Contestant& contestant, const std::filesystem::path& runs);

struct Comparison {
  std::vector<Outcome> outcomes;  // on the test set
  std::vector<Choice> choices;    // of those that had something to choose
  bool stopped = false;
};

/// Runs what is not done yet, `together` runs at a time. `told` hears of each: how many are done, of how many (more where a grid is
/// widened), and which. A run that fails ends the others, and what it says is thrown. ConfigError if another process compares in the
/// same folder.
Comparison compare(const Recipe& recipe, const std::filesystem::path& runs, int together, const std::atomic<bool>& stop,
                   const std::function<void(std::size_t done, std::size_t all, const Contestant&, const Outcome*)>& told);

}  // namespace paceline::train
