// Refuses operations that no engine can carry out, before any rank waits for them.
#pragma once

#include "paceline/comm/operation.h"

namespace paceline::comm {

/// Throws ConfigError for an operation that is not valid for this rank of `size`.
void validate(const Operation& operation, int rank, int size);

}  // namespace paceline::comm
