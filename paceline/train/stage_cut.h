// Cuts a run's model into the stages of its pipeline: once, and identically on all ranks.
#pragma once

#include <vector>

#include "paceline/base/clock.h"
#include "paceline/comm/mesh.h"
#include "paceline/data/dataset.h"
#include "paceline/nn/graph_module.h"
#include "paceline/train/memory_plan.h"

namespace paceline::train {

/// ConfigError if the pipeline's schedule refuses so many stages, micro-batches or chunks.
void check_schedule(const memory::Plan& plan);

/// The memory plan of a run. ConfigError if the network or the schedule refuses to be shared so.
memory::Plan checked_plan(const Recipe& recipe, const graph::Graph& graph, const comm::MeshSizes& mesh, const RunFacts& run);

/// By virtual stage; empty if the mesh has one stage. Costs are counted or measured, by parallel.costs, and train.memory_gb limits what a
/// rank may need; ConfigError if no cut fits, or the network cannot be shared so, before anything is allocated. `options`: of the module
/// that will be created; `own_loss`: the program's. Collective.
std::vector<nn::Units> cut_network(const Recipe& recipe, const graph::Graph& graph, const nn::GraphModule::Options& options,
                                   const data::Info& info, const comm::Mesh& mesh, const Clock& clock, bool own_loss);

/// The same for a user's module, whose memory cannot be counted before it computes. Collective.
std::vector<nn::Units> cut_module(const Recipe& recipe, nn::Model& model, const data::Info& info, const comm::Mesh& mesh,
                                  const Clock& clock);

}  // namespace paceline::train
