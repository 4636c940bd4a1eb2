// The memory that a few steps of a recipe actually use, by rank: from the arena's ledger and LibTorch's allocators.
#pragma once

#include <vector>

#include "paceline/memory/estimate.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// Trains a few steps with every rank a thread of this process; the first, which allocates what stays, does not count. By rank: the peak of
/// each category.
std::vector<memory::Bytes> measure_memory(Recipe recipe, std::int64_t steps = 4);

}  // namespace paceline::train
