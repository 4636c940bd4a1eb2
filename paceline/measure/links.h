// What messages and collectives cost among the ranks that measure.
#pragma once

#include <map>

#include "paceline/measure/call_timer.h"
#include "paceline/perf/cluster.h"

namespace paceline::measure {

/// α, β, gap and duplex of one class of links: among the ranks of `group`, all of which call it. `name` is the link's. α and β fit a ring's
/// all-gather at several sizes, with all ranks sending at the same time; it adds nothing up, so nothing else is in its time.
perf::Link measure_link(const CallTimer& timer, comm::Communicator& group, const std::string& name);

/// α and β of t = rounds·α + moved/β, where `seconds` are those of a ring's all-gather among this many ranks, by bytes of the whole buffer.
/// β is that of the longest message, since short ones fit into buffers on their way; α is what then fits all of them best.
struct MessageCosts {
  double latency_s = 0, bytes_per_s = 0;
};
MessageCosts fit_ring(int ranks, const std::map<std::int64_t, double>& seconds);

/// Times of collectives by size among all ranks: every algorithm of an allreduce, and the one that comm chooses of the others. Between
/// hosts they are measured as the steps of a run make them (CallTimer::after_computing).
std::vector<perf::CollectiveTimes> measure_collectives(const CallTimer& timer, std::int64_t largest);

/// How much longer a product takes while an allreduce is in flight in another thread of each rank.
double measure_slowdown(const CallTimer& timer);

}  // namespace paceline::measure
