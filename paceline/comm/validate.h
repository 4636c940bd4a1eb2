// What no engine can carry out, refused before anybody waits for it.
#pragma once

#include "paceline/comm/operation.h"

namespace paceline::comm {

/// Throws ConfigError for an operation that makes no sense for this rank among so many.
void validate(const Operation& operation, int rank, int size);

}  // namespace paceline::comm
