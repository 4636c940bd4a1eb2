// Finds the ranks that share a colour. Every engine's communicators are split this way.
#pragma once

#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::comm {

/// The ranks of `group` that give this colour, in the order of (key, rank). Collective.
std::vector<int> members_of(Communicator& group, int color, int key);

}  // namespace paceline::comm
