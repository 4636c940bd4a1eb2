// What to do about a mesh that is refused: the nearest mesh of as many ranks that a run accepts. Runs ask, and so does `paceline memory`.
#pragma once

#include <functional>

#include "paceline/base/mesh_refusal.h"
#include "paceline/graph/graph.h"
#include "paceline/memory/estimate.h"
#include "paceline/nn/model.h"
#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::train {

/// Whether a run accepts the mesh of a recipe that validate() accepts; a ConfigError means that it does not.
using MeshCheck = std::function<bool(const Recipe&)>;

/// By the network: its units, what its layers can share, and whether it fits into train.memory_gb.
MeshCheck check_by_network(const graph::Graph& graph, bool own_loss);
/// By a user's module; null before it is made, and then it counts as a single unit.
MeshCheck check_by_module(const nn::Model* module);
/// Before anything is made: by the network for the recipe's data or, where these cannot be read, of its usual size.
MeshCheck check_by_recipe(const Recipe& recipe, const Workload& workload);

/// Throws the refusal of this recipe with a remedy that works for parallel.workers: "--mesh data=2,pipeline=4,tensor=1". If no mesh of that
/// many ranks is accepted, the remedy is the nearest number of ranks that has one.
[[noreturn]] void refuse_mesh(const MeshRefusal& refusal, const Recipe& recipe, const MeshCheck& check);

/// The plan of a run and what its ranks hold, by formulas.
struct Estimated {
  memory::Plan plan;
  std::vector<memory::RankKind> kinds;
};
/// For a recipe of resolve_for(). Refuses settings and meshes that a run would refuse, in the same words; devices, data and whether it fits
/// are not looked at.
Estimated estimate_run(const Recipe& recipe, const graph::Graph& graph);

}  // namespace paceline::train
