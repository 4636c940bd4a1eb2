// What a group's messages cost, and which algorithm is the cheapest for one of its collectives.
#pragma once

#include <string>

#include "paceline/comm/communicator.h"
#include "paceline/schedule/path.h"

namespace paceline::comm {

/// Into how many chunks a buffer is cut that flows through a tree or chain.
std::int64_t chunks_for(std::int64_t bytes);

/// t = rounds·α + queued messages·gap + moved bytes/B + reduced bytes·g, along the critical path (docs/algorithms.md).
struct Costs {
  double alpha_s = 0;            // of one message
  double gap_s = 0;              // of each further one that a rank sends or receives at the same time
  double bytes_per_s = 0;        // B
  double reduce_s_per_byte = 0;  // g
};

/// What messages are taken to cost where results must repeat: the same in every run. `network`: they cross one, and not memory.
Costs built_in_costs(bool network, const CommConfig& config, const Topology& topology);

/// Measures with collectives among all ranks; every rank gets the same answer. Collective; takes some milliseconds.
Costs measure_costs(Communicator& communicator);

double predict(const Costs& costs, const schedule::Path& path, std::int64_t element_bytes);

/// Bytes, rounded up to one of eight lengths in each power of two. Lengths that become the same one share a choice, so that a group whose
/// lengths always differ (codes of a sparse compressor) chooses a few hundred times and not without end.
std::int64_t rounded_length(std::int64_t bytes);

/// The key of the cheapest algorithm, the same for all ranks.
std::string cheapest(const Costs& costs, const schedule::Problem& problem, std::int64_t element_bytes);

}  // namespace paceline::comm
