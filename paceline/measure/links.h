// Measures the cost of messages and collectives among the measuring ranks.
#pragma once

#include <map>

#include "paceline/measure/call_timer.h"
#include "paceline/perf/cluster.h"

namespace paceline::measure {

/// α, β, gap and duplex of one class of links, measured among the ranks of `group`, all of which call it. `name` is the link's. α and β are
/// fitted to a ring all-gather at several sizes, with all ranks sending at the same time; an all-gather adds nothing up, so its time
/// contains only messages.
perf::Link measure_link(const CallTimer& timer, comm::Communicator& group, const std::string& name);

/// α and β of t = rounds·α + moved/β, fitted to `seconds` of a ring all-gather among this many ranks, by bytes of the whole buffer. β is
/// that of the longest message, since shorter ones fit into buffers on the way; α is the best fit to all sizes given that β.
struct MessageCosts {
  double latency_s = 0, bytes_per_s = 0;
};
MessageCosts fit_ring(int ranks, const std::map<std::int64_t, double>& seconds);

/// Times of collectives by size among all ranks: every allreduce algorithm, and for other collectives the algorithm that comm chooses.
/// Between hosts they are measured as they occur in training steps (CallTimer::after_computing).
std::vector<perf::CollectiveTimes> measure_collectives(const CallTimer& timer, std::int64_t largest);

/// How much longer a product takes while an allreduce is in flight in another thread of each rank.
double measure_slowdown(const CallTimer& timer);

}  // namespace paceline::measure
