// Converts a recipe to the input of memory/'s formulas, and refuses one that will not fit.
#pragma once

#include "paceline/memory/estimate.h"
#include "paceline/nn/model.h"
#include "paceline/train/recipe.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {

/// The memory of a compressed exchange of gradients (data_parallel/compressed.cpp). `wire_bytes`: bytes of an encoded element.
memory::Compression held_by(const compress::Compressor& compressor, const compress::CompressConfig& config, double wire_bytes, bool gpu);

/// The memory of a rank under this recipe. ConfigError if the mesh does not match the number of workers.
memory::Plan plan_of(const Recipe& recipe, const RunPlace& place = {});

/// ConfigError if the network cannot be trained on this mesh with the recipe's ZeRO stage and recomputation. `own_loss`: the loss is the
/// program's, instead of softmax. What the split of layers itself refuses is not checked here.
void check_network(const Recipe& recipe, const graph::Graph& graph, const comm::MeshSizes& mesh, bool own_loss);

/// Whether the recipe's strategy, or the one that `auto` was resolved to, is for a single worker, while this many data-parallel workers
/// need another.
bool lacks_strategy(const Recipe& recipe, int workers);
/// The same run on another mesh, all of whose sizes are given.
Recipe on_mesh(Recipe recipe, const comm::MeshSizes& mesh);
/// The network, if its data-parallel workers divide some of it; otherwise "".
std::string name_of_divided(const Recipe& recipe, const graph::Graph& graph);
/// ConfigError if the strategy refuses its settings on the recipe's mesh, all of whose sizes are set. `divided`: as above.
void check_strategy(const Recipe& recipe, const std::string& divided, const RunPlace& place = {});

/// What is known about a run in addition to its recipe.
struct RunFacts {
  RunPlace place;
  bool own_loss = false;
};

/// Throws ConfigError, with the nearest choice that fits and that such a run would accept, if a rank would need more than train.memory_gb
/// or, if that is not set, if the ranks of a host or a GPU together need more than it has; before anything is allocated. `stages`: as in
/// memory::estimate().
void require_memory(const Recipe& recipe, const graph::Graph& graph, const memory::Plan& plan, const RunFacts& run,
                    const std::vector<graph::Units>& stages = {});
/// The same for a user's module. Only parameters, gradients and moments are counted, because what its layers save is unknown.
void require_memory(const Recipe& recipe, nn::Model& model, const memory::Plan& plan, const RunFacts& run);

}  // namespace paceline::train
