// Squared norms in a fixed order of addition: lanes within a block, then blocks in order. Squares of floats are exact in double.
#pragma once

#include <cstdint>

namespace paceline::optim {

/// The squared norm of at most kBlock values, on the calling thread.
double block_squared_norm(const float* values, std::int64_t n);

}  // namespace paceline::optim
