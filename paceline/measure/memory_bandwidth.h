// The memory bandwidth of this machine, the yardstick of every fused update.
#pragma once

#include <cstdint>

namespace paceline::measure {

/// Bytes read and written per second, in GB/s (10⁹), by the triad a ← b + s · c on all OpenMP threads; the best of several rounds.
/// `bytes` is the size of each of the three buffers and should be several times the last cache.
double memory_bandwidth_gb_per_s(std::int64_t bytes = std::int64_t{128} << 20);

}  // namespace paceline::measure
