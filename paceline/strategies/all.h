// The factories of all strategies, for the table in registry.cpp.
#pragma once

#include "paceline/strategies/registry.h"

namespace paceline::strategies {

std::unique_ptr<step::Strategy> make_single(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_allreduce(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_stale_sync(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_local_sgd(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_sparknet(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_easgd(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_diloco(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_gossip(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_ad_psgd(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_sgp(const StrategyConfig& config);
std::unique_ptr<step::Strategy> make_central(const StrategyConfig& config);  // all that have a parameter server, central/

}  // namespace paceline::strategies
