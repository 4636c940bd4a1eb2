#include "catalog.h"

#include "paceline/comm/engine.h"
#include "paceline/compress/compressor.h"
#include "paceline/data/dataset.h"
#include "paceline/graph/registry.h"
#include "paceline/optim/optimizer.h"
#include "paceline/optim/rate_schedule.h"
#include "paceline/perf/cluster.h"
#include "paceline/ps/consistency.h"
#include "paceline/ps/executors.h"
#include "paceline/ps/predictors/predictor.h"
#include "paceline/ps/rule.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/schedule/schedule.h"
#include "paceline/step/strategy.h"
#include "paceline/strategies/registry.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {

namespace {

/// The pair that a strategy with a server is, and the setting under which several workers train as one does.
std::vector<std::vector<Column>> columns_of_strategies() {
  std::vector<std::vector<Column>> rows;
  for (const auto& [key, help, kind] : strategies::strategies()) {
    std::vector<Column>& row = rows.emplace_back();
    if (!kind.rule.empty()) row = {{"rule", kind.rule}, {"consistency", kind.consistency}};
    if (kind.synchronous_with) row.push_back({"synchronous_with", *kind.synchronous_with});
  }
  return rows;
}

}  // namespace

std::vector<Shelf> catalog() {
  return {
      {"networks", listing(graph::networks())},
      {"datasets", listing(data::datasets())},
      {"optimizers", listing(optim::optimizers())},
      {"schedules", listing(optim::schedules())},
      {"engines", listing(comm::engines())},
      {"collectives", listing(schedule::algorithms())},
      {"compressors", listing(compress::compressors())},
      {"update_rules", listing(ps::update_rules())},
      {"consistencies", listing(ps::consistencies())},
      {"predictors", listing(ps::predictors())},
      {"executors", listing(ps::executors())},
      {"strategies", listing(strategies::strategies()), columns_of_strategies()},
      {"pipelines", listing(schedule::pipelines())},
      {"clusters", listing(perf::clusters())},
  };
}

std::vector<RecipeKey> recipe_keys() {
  train::Recipe recipe;
  const Config config = recipe.config();
  std::vector<RecipeKey> keys;
  for (const Section& section : config.sections())
    for (const Field& field : section.fields())
      keys.push_back({section.name() + "." + field.key(), field.type(), field.toml(), field.allowed(), field.help()});
  return keys;
}

}  // namespace paceline::cli
