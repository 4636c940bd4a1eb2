// The section [compare] of a recipe. Apart from what reads it (entrants.h), because every recipe has it.
#include "paceline/train/recipe.h"

namespace paceline::train {

void CompareConfig::describe(Section& section) {
  section.field("algorithms", algorithms,
                "strategies, or labels with settings, separated by semicolons: \"sgd; asgd; mine: strategy.name=asgd optim.rate=0.05\"; "
                "where a setting has several values, as in optim.rate=0.05|0.1, the best is chosen on held-out data");
  section.field("workers", workers, "worker counts to compare; data.batch is per worker").at_least(1);
  section.field("seeds", seeds, "seeds of the runs").at_least(0);
  section.field(
      "clocks", clocks,
      "labels with settings of [timing], written as in algorithms: everything is compared under each of them; empty: under [timing] alone");
  section.field("grid", grid,
                "settings with several values, from which each algorithm chooses on held-out data: \"optim.rate=0.05|0.1|0.2\"");
  section
      .field("widen", widen,
             "values that may be added to an axis of a grid, by the axis's own ratio, while the best one is at its edge; 0: none")
      .at_least(0)
      .at_most(64);
  section.field("held_out", held_out, "training samples held out for tuning; the test set is not used").at_least(1);
  section.field("tuning_seeds", tuning_seeds, "seeds of the tuning runs").at_least(0);
  section.field(
      "references", references,
      "labels that the others are compared with, seed by seed, separated by semicolons; empty: the first algorithm with several workers");
  section.field("accuracies", accuracies, "accuracies in %: the report says how long each run took to reach them").above(0).at_most(100);
}

}  // namespace paceline::train
