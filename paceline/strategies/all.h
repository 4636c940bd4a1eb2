// The factories of the strategies in this room, for the table in registry.cpp.
#pragma once

#include "paceline/strategies/registry.h"

namespace paceline::strategies {

std::unique_ptr<step::Strategy> make_single(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_allreduce(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_stale_sync(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_local_sgd(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_sparknet(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_easgd(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_diloco(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_gossip(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_ad_psgd(const StrategyConfig& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_sgp(const StrategyConfig& config, const step::Context& context);

}  // namespace paceline::strategies
