// Sizes of the pieces in which large layers are computed to bound their working memory: nn computes in these pieces, memory counts them.
#pragma once

#include <cstdint>

namespace paceline::graph {

inline constexpr std::int64_t kLogitsAtOnce = 1 << 22;  // whose probabilities the loss holds at once
inline constexpr std::int64_t kAttentionRows = 64;      // in a block of attention scores
inline constexpr std::int64_t kScoresAtOnce = 1 << 24;  // in a block of several samples

}  // namespace paceline::graph
