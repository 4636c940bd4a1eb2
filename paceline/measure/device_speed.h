// The speed of a device of this machine while the other ranks of its host use theirs in the same way.
#pragma once

#include <vector>

#include "paceline/measure/call_timer.h"
#include "paceline/perf/cluster.h"

namespace paceline::measure {

/// Measures everything but the slow-down, which needs messages (links.h). `precisions` begin with fp32. `largest` limits the size of a
/// product, in flops. All values are measured except the block sizes, which are those of BLIS for any processor. Collective.
perf::Device measure_device(const CallTimer& timer, const std::vector<perf::Precision>& precisions, double largest);

/// A Speed from product rates at several sizes in flops; its peak is the fastest of them, in flop/s.
perf::Speed speed_of(const std::vector<perf::Efficiency::Point>& product_rates,
                     const std::vector<perf::Efficiency::Point>& convolution_rates);

/// The memory per rank if this many ranks share the host.
double memory_bytes(const c10::Device& device, int ranks_of_host);

}  // namespace paceline::measure
