// What a group's messages cost (schedule/cost.h): assumed, or measured.
#pragma once

#include "paceline/comm/communicator.h"
#include "paceline/schedule/cost.h"

namespace paceline::comm {

// Inside a host nothing is chosen by cost: `direct` is the choice there, and `hierarchical` for an allreduce across hosts of several ranks.
// Other costs would lead to other choices, and so to other orders of additions.

/// The assumed costs where results must be repeatable: the same in every run. `network`: messages cross a network rather than memory.
schedule::Costs built_in_costs(bool network, const CommConfig& config, const Topology& topology);

/// Measures with collectives among all ranks; every rank gets the same answer. Collective; takes some milliseconds.
schedule::Costs measure_costs(Communicator& communicator);

}  // namespace paceline::comm
