// What a process creates from its recipe before it trains. A Trainer and the servers and workers of several processes (remote_processes.h)
// all create it here, so that the same recipe gives each process the same model, the same settings to agree on and the same minibatches.
#pragma once

#include <memory>

#include "paceline/base/clock.h"
#include "paceline/comm/mesh.h"
#include "paceline/data/loader.h"
#include "paceline/nn/model.h"
#include "paceline/observe/event.h"
#include "paceline/step/strategy.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/datasets.h"
#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::train {

/// tensor::configure_libtorch as the recipe says: in every thread that computes.
void configure_libtorch(const Recipe& recipe, int threads);

/// Throws Error if a memory limit leaves too little for this many threads to start. OpenBLAS would retry its allocations forever.
void ensure_memory_for(int threads);

/// A rank's part of the model, and what all ranks know of it.
struct StagedModel {
  std::shared_ptr<nn::Model> model;
  std::vector<nn::Units> stages;  // of the pipeline (stage_cut.h); empty: there is one stage
};

/// The workload's model, or else the recipe's network for the dataset, with the weights of that file or, if it is empty, random ones, in
/// memory of the data axis; the same on all its ranks. Collective.
StagedModel make_model(const Recipe& recipe, const Workload& workload, const data::Info& info, const comm::Mesh& mesh,
                       const std::string& weights, const Clock& clock);

/// The model as the ranks along the data axis share it, by parallel.zero. Collective.
std::shared_ptr<nn::Model> share_out(const Recipe& recipe, std::shared_ptr<nn::Model> model, const comm::Mesh& mesh, const Clock& clock);

/// The workload's name, or else that of the recipe's network.
std::string network_of(const Recipe& recipe, const Workload& workload);

/// ConfigError if the checkpoint belongs to a model that neither Paceline nor the workload has.
void require_own_program(const Checkpoint& checkpoint, const std::string& source, const Workload& workload);

/// For the whole model, whichever part of it a rank holds.
std::int64_t parameters_of(nn::Model& model);

/// Multiplications of a sample's forward pass; 0 if unknown, as for a user's module.
std::int64_t macs_of(const nn::Model& model);

/// The context of a strategy, or of a part of one. The arguments except `stages` must outlive it.
step::Context context_of(const Recipe& recipe, const Workload& workload, nn::Model& model, const std::vector<nn::Units>& stages,
                         const comm::Mesh& mesh, observe::Bus& bus, const Clock& clock);

/// The parameter server of a process of `cluster`, each of whose workers has this many threads; unused if the strategy has none.
central::Settings servers_of(const Recipe& recipe, const ps::Cluster& cluster, int threads);
/// The settings of the recipe's strategy, in addition to its context.
strategies::StrategySettings strategy_of(const Recipe& recipe, const ps::Cluster& cluster, int threads);

data::LoaderOptions loader_options(const Recipe& recipe, data::Split split, const comm::Communicator& comm, std::int64_t batch);

/// How many of the `samples` a step of `epoch` uses: those of all workers together, or one worker's minibatch with a parameter server. The
/// number of workers is set in `recipe`.
std::int64_t minibatch_of(const Recipe& recipe, std::int64_t samples, std::int64_t epoch);

}  // namespace paceline::train
