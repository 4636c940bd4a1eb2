// What a run trains and tests with.
#pragma once

#include <memory>

#include "paceline/data/dataset.h"
#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::train {

/// The training and the test data.
struct Datasets {
  std::shared_ptr<const data::Dataset> training, test;
};
/// The workload's, or else the recipe's. ConfigError if the workload has only one of them.
Datasets make_datasets(const Recipe& recipe, const Workload& workload = {});

}  // namespace paceline::train
