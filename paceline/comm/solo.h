// A communicator of one: this rank of another communicator, alone. It exchanges nothing, so it can be created without the other ranks and
// costs nothing.
#pragma once

#include <memory>

#include "paceline/comm/communicator.h"

namespace paceline::comm {

/// Engine, memory and this rank's name are those of `among`, which outlives it.
std::unique_ptr<Communicator> solo(Communicator& among);

}  // namespace paceline::comm
