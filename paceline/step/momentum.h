// Where the momentum is if a compressor has its own (dgc): in what the workers send, and not in the optimizer that applies it.
#pragma once

#include <string>

#include "paceline/optim/optimizer.h"

namespace paceline::step {

/// Whether the compressor applies the optimizer's momentum, with any number of workers.
bool corrects_momentum(const std::string& compression);

/// The optimizer that applies what was sent: the recipe's, without momentum if the compressor applies it. ConfigError if it cannot: it
/// knows only that of sgd.
optim::OptimConfig optimizer_behind(const std::string& compression, optim::OptimConfig optim);

}  // namespace paceline::step
