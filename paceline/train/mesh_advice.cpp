#include "paceline/train/mesh_advice.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "paceline/base/text.h"
#include "paceline/comm/nearest_mesh.h"
#include "paceline/memory/fit.h"
#include "paceline/nn/module_model.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/memory_plan.h"
#include "paceline/train/stage_cut.h"

namespace paceline::train {
namespace {

std::string flags_for(const Recipe& recipe, const comm::MeshSizes& mesh) {
  return fmt::format("--mesh {}{}", comm::mesh_text(mesh), lacks_strategy(recipe, mesh.data) ? " strategy.name=auto" : "");
}

/// The largest number of stages that all have weights to train.
std::ptrdiff_t most_stages(const nn::Model& module) {
  if (dynamic_cast<const nn::ModuleModel*>(&module) == nullptr) return 1;
  return std::ranges::count_if(module.units(), [](const nn::Unit& unit) { return unit.first_entry < unit.last_entry; });
}

}  // namespace

MeshCheck check_by_network(const graph::Graph& graph, bool own_loss) {
  const auto network = std::make_shared<const graph::Graph>(graph);
  const auto estimator = std::make_shared<const memory::Estimator>(*network);
  return [network, estimator, own_loss](const Recipe& recipe) {
    check_network(recipe, *network, recipe.parallel.mesh(), own_loss);
    check_strategy(recipe, name_of_divided(recipe, *network));
    const memory::Plan plan = plan_of(recipe);
    check_schedule(plan);
    const std::int64_t bytes = memory::need_of(*estimator, plan).bytes;  // ConfigError if it cannot be cut or split
    return plan.limit == 0 || bytes <= plan.limit;
  };
}

MeshCheck check_by_module(const nn::Model* module) {
  const std::ptrdiff_t most = module ? most_stages(*module) : 1;
  return [most](const Recipe& recipe) {
    check_strategy(recipe, "");
    const memory::Plan plan = plan_of(recipe);
    check_schedule(plan);
    return plan.tensor == 1 && (plan.pipeline == 1 || plan.pipeline * plan.chunks <= most);
  };
}

MeshCheck check_by_recipe(const Recipe& recipe, const Workload& workload) {
  if (workload.model) return check_by_module(nullptr);
  const auto network = [&] {
    try {
      return graph_for(recipe.model, make_datasets(recipe, workload).training->info());
    } catch (const Error&) {  // about the data; the mesh was refused first
      return graph::make_graph(recipe.model);
    }
  };
  return check_by_network(network(), workload.loss != nullptr);
}

void refuse_mesh(const MeshRefusal& refusal, const Recipe& recipe, const MeshCheck& check) {
  const auto accepts = [&](const comm::MeshSizes& mesh) {
    try {
      const Recipe changed = on_mesh(recipe, mesh);
      validate(changed);
      return changed.servers() || check(changed);
    } catch (const ConfigError&) {
      return false;
    }
  };
  const auto nearest = [&](int ranks) { return comm::nearest_mesh(recipe.parallel.mesh(), ranks, accepts); };
  const auto ranks = static_cast<int>(recipe.parallel.workers);
  if (const auto mesh = nearest(ranks)) throw ConfigError(refusal.problem() + flags_for(recipe, *mesh));
  for (int away = 1; away <= ranks; ++away)
    for (const int other : {ranks - away, ranks + away})
      if (const auto mesh = other > 0 ? nearest(other) : std::nullopt)
        throw ConfigError(fmt::format("{}{} with {}", refusal.problem(), plural(other, "rank"), flags_for(recipe, *mesh)));
  throw ConfigError(refusal.what());
}

Estimated estimate_run(const Recipe& recipe, const graph::Graph& graph) {
  if (recipe.servers()) {
    const memory::Plan plan = plan_of(recipe);
    return {plan, memory::estimate(graph, plan)};
  }
  try {
    const comm::MeshSizes mesh = comm::resolved(recipe.parallel.mesh(), static_cast<int>(recipe.parallel.workers));
    const memory::Plan plan = checked_plan(recipe, graph, mesh, {});
    check_strategy(recipe, name_of_divided(recipe, graph));
    return {plan, memory::estimate(graph, plan)};
  } catch (const MeshRefusal& refusal) {
    refuse_mesh(refusal, recipe, check_by_network(graph, /*own_loss=*/false));
  }
}

}  // namespace paceline::train
