// How much of a layer's work is in memory at once, where it is cut into pieces for that: nn computes in these pieces, memory counts them.
#pragma once

#include <cstdint>

namespace paceline::graph {

inline constexpr std::int64_t kLogitsAtOnce = 1 << 22;  // whose probabilities the loss holds
inline constexpr std::int64_t kAttentionRows = 64;      // of a block of attention's scores
inline constexpr std::int64_t kScoresAtOnce = 1 << 24;  // in a block of several samples

}  // namespace paceline::graph
