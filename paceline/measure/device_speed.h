// What a device of this machine does in a second, while the other ranks of its host do the same.
#pragma once

#include <vector>

#include "paceline/measure/call_timer.h"
#include "paceline/perf/cluster.h"

namespace paceline::measure {

/// All but the slow-down, which needs messages (links.h). `precisions` begin with fp32. `largest` is the longest that one product may be,
/// in flops. Every value is measured but the blocks, which are BLIS' for any processor. Collective.
perf::Device measure_device(const CallTimer& timer, const std::vector<perf::Precision>& precisions, double largest);

/// Products that are run for this many flops, and the fastest of them in flop/s, as a speed.
perf::Speed speed_of(const std::vector<perf::Efficiency::Point>& product_rates,
                     const std::vector<perf::Efficiency::Point>& convolution_rates);

/// The memory of each rank, if this many share the host.
double memory_bytes(const c10::Device& device, int ranks_of_host);

}  // namespace paceline::measure
