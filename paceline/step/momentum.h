// Where momentum is applied if a compressor has its own (dgc): in what the workers send, not in the optimizer.
#pragma once

#include <string>

#include "paceline/optim/optimizer.h"

namespace paceline::step {

/// Whether the compressor applies the optimizer's momentum, with any number of workers.
bool corrects_momentum(const std::string& compression);

/// The optimizer that applies what was sent: the recipe's, without momentum if the compressor applies it. ConfigError if it cannot: only
/// sgd's momentum is supported.
optim::OptimConfig optimizer_behind(const std::string& compression, optim::OptimConfig optim);

}  // namespace paceline::step
