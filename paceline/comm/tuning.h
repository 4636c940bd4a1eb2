// What a group's messages cost, and which algorithm is the cheapest for one of its collectives.
#pragma once

#include <string>

#include "paceline/comm/communicator.h"

namespace paceline::comm {

/// Into how many chunks a buffer is cut that flows through a tree or chain.
std::int64_t chunks_for(std::int64_t bytes);

/// t = rounds·α + sent bytes/B + reduced bytes·g (docs/algorithms.md).
struct Costs {
  double alpha_s = 0;            // of one message
  double bytes_per_s = 0;        // B
  double reduce_s_per_byte = 0;  // g
};

/// Measures with messages between the first and the last rank; every rank gets the same answer. Collective; takes some milliseconds.
Costs measure_costs(Communicator& communicator);

double predict(const Costs& costs, const schedule::Counts& counts, std::int64_t element_bytes);

/// The key of the cheapest algorithm, the same for all ranks.
std::string cheapest(const Costs& costs, schedule::Problem problem, std::int64_t element_bytes);

}  // namespace paceline::comm
