// Who carries the momentum where a compressor does so itself (dgc): the workers, in what they send, and not the optimizer behind them.
#pragma once

#include <string>

#include "paceline/optim/optimizer.h"

namespace paceline::step {

/// Whether the compressor carries the optimizer's momentum, among however many workers.
bool corrects_momentum(const std::string& compression);

/// The optimizer of whoever applies what was sent: the recipe's, without momentum where the compressor carries it. ConfigError where it
/// cannot: that of sgd is the one it knows.
optim::OptimConfig optimizer_behind(const std::string& compression, optim::OptimConfig optim);

}  // namespace paceline::step
