#include "paceline/strategies/all.h"

namespace paceline::strategies {
namespace {

constexpr Entry<MakeStrategy> kStrategies[] = {
    {"single", "one worker; no communication", make_single},
};

}  // namespace

std::span<const Entry<MakeStrategy>> strategies() { return kStrategies; }

std::unique_ptr<Strategy> make_strategy(const StrategyConfig& config) { return find(strategies(), "strategy", config.name).make(config); }

void StrategyConfig::describe(Section& section) {
  std::vector<std::string_view> keys;
  for (const auto& entry : strategies()) keys.push_back(entry.key);
  section.field("name", name, "how workers train together").one_of(keys);
}

}  // namespace paceline::strategies
