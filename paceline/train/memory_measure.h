// What a few steps of a recipe really hold, by rank: from the arena's ledger and from what LibTorch's allocators report.
#pragma once

#include <vector>

#include "paceline/memory/estimate.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// Trains a few steps, of which the first makes what stays and does not count, with every rank a thread of this process. By rank: the most
/// that each category held at once.
std::vector<memory::Bytes> measure_memory(Recipe recipe, std::int64_t steps = 4);

}  // namespace paceline::train
