// data.held_out: the last samples of the training set take the place of the test set, so that settings can be chosen without looking at
// the test set.
#pragma once

#include "paceline/data/dataset.h"

namespace paceline::data {

/// Split::train: `training` without its last `held_out` samples; Split::test: only those. For text, whose windows may be shifted
/// up to the next one, the window between the two parts is in neither. ConfigError if nothing would be left to train on.
std::unique_ptr<Dataset> part_of(std::unique_ptr<Dataset> training, std::int64_t held_out, Split split);

}  // namespace paceline::data
