#include "catalog.h"

#include "paceline/data/dataset.h"
#include "paceline/graph/registry.h"
#include "paceline/optim/optimizer.h"
#include "paceline/optim/schedule.h"
#include "paceline/strategies/strategy.h"

namespace paceline::cli {

std::vector<Shelf> catalog() {
  return {
      {"networks", listing(graph::networks())},
      {"datasets", listing(data::datasets())},
      {"optimizers", listing(optim::optimizers())},
      {"schedules", listing(optim::schedules())},
      {"engines", {}},
      {"collectives", {}},
      {"compressors", {}},
      {"update_rules", {}},
      {"consistencies", {}},
      {"strategies", listing(strategies::strategies())},
      {"pipelines", {}},
  };
}

}  // namespace paceline::cli
