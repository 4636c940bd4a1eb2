// The factories of all strategies, for the table in registry.cpp.
#pragma once

#include "paceline/strategies/strategy.h"

namespace paceline::strategies {

std::unique_ptr<Strategy> make_single(const StrategyConfig& config);

}  // namespace paceline::strategies
