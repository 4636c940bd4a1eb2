// A comparison: algorithms × clocks × numbers of workers × seeds, each a separate run in its own folder, so that finished runs are never
// repeated. Algorithms with a grid (entrants.h) first run every point of it on held-out training samples, and then continue with the best;
// compare.widen adds points where the best lies at the edge.
#pragma once

#include <atomic>
#include <functional>

#include "paceline/train/choice.h"

namespace paceline::train {

/// The recipe of one run, whose folder will be `runs`/contestant.folder(). The recipe's data.batch is per worker. Keeps those of the slow
/// workers that this run has; ConfigError if no run of the comparison has one of them. A virtual clock charges plain SGD on one worker for
/// no transfers.
Recipe recipe_of(const Recipe& recipe, const Contestant& contestant, const std::filesystem::path& runs);

struct Comparison {
  std::vector<Outcome> outcomes;  // on the test set
  std::vector<Choice> choices;    // of algorithms with something to choose
  bool stopped = false;
};

/// Makes the runs that are not done yet, `together` at a time. `told` is called for each: how many are done, out of how many (more if a
/// grid is widened), and which. A run that fails ends the others, and its error is thrown. ConfigError if another process compares in the
/// same folder.
Comparison compare(const Recipe& recipe, const std::filesystem::path& runs, int together, const std::atomic<bool>& stop,
                   const std::function<void(std::size_t done, std::size_t all, const Contestant&, const Outcome*)>& told);

}  // namespace paceline::train
