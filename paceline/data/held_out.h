// data.held_out: the last samples of the training set take the place of the test set, so that settings can be chosen without a look at
// that.
#pragma once

#include "paceline/data/dataset.h"

namespace paceline::data {

/// Split::train: `training` without its last `held_out` samples; Split::test: those alone. Of text, whose windows may be drawn to begin
/// anywhere before the next one, the window between the two is in neither. ConfigError where nothing would be left to train on.
std::unique_ptr<Dataset> part_of(std::unique_ptr<Dataset> training, std::int64_t held_out, Split split);

}  // namespace paceline::data
