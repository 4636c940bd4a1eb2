// A recipe: everything that decides what a run computes. The same recipe and seed give the same bits.
#pragma once

#include <algorithm>
#include <optional>

#include "paceline/base/config.h"
#include "paceline/comm/communicator.h"
#include "paceline/comm/mesh.h"
#include "paceline/compress/compressor.h"
#include "paceline/data/dataset.h"
#include "paceline/graph/registry.h"
#include "paceline/optim/optimizer.h"
#include "paceline/optim/rate_schedule.h"
#include "paceline/strategies/registry.h"

namespace paceline::train {

/// [train] of a recipe.
struct TrainConfig {
  std::int64_t epochs = 3;
  std::int64_t steps = 0;  // 0: as many as the epochs have; otherwise stop after this many
  std::int64_t seed = 1;
  std::string device = "auto";
  std::string precision = "fp32";
  std::string storage = "fp32";       // of parameters
  std::string gradients = "storage";  // whose dtype is stored: that of storage, or fp32
  std::string recompute = "none";     // which activations the backward pass recomputes
  double memory_gb = 0;               // per rank; 0: what the machine has
  std::int64_t threads = 0;           // 0: OMP_NUM_THREADS, else all cores that it may use
  std::int64_t micro_batches = 1;     // gradient accumulation
  double label_smoothing = 0;
  double evaluate_every = 1;          // epochs; 0: only at the end
  std::int64_t checkpoint_every = 0;  // in steps; 0: as often as checkpoint_share allows
  double checkpoint_share = 0.01;     // the largest share of the run's time that checkpoints may take
  bool checkpoints = true;            // whether to write any
  std::int64_t keep = 2;              // checkpoints kept
  std::string runs = "runs";          // folder of the runs
  std::string name;                   // of this run's folder; empty: made from network, dataset and time
  bool trace = false;                 // write a Chrome trace
  bool record_steps = true;           // CUDA: record the step in a graph
  bool repeatable = true;             // no choice by measurement that would change the bits
  std::string cluster, profile;       // which the prediction of the run's step uses (predicted_time.h); empty: files in the current folder

  const std::string& stored_gradients() const { return gradients == "storage" ? storage : gradients; }  ///< their dtype
  void describe(Section& section);
};

/// [parallel] of a recipe.
struct ParallelConfig {
  std::int64_t workers = 0;                         // 0: one for each process, or as many as the mesh has
  std::int64_t data = 0, pipeline = 1, tensor = 1;  // how many of them lie along each axis of the mesh; 0: the rest
  std::string hybrid = "none";                      // layers that data-parallel workers share: auto, or names
  std::int64_t zero = 0;                            // stage
  std::string schedule = "1f1b";                    // of the pipeline
  std::int64_t chunks = 0;                          // of the network on each rank of a pipeline; 0: the schedule's default
  std::string costs = "counted";                    // how the pipeline's units are costed to cut the network
  bool sequence = false;                            // workers of the tensor axis share positions, too
  bool offload = false;                             // CUDA: optimizer state and updates in host memory
  void describe(Section& section);

  comm::MeshSizes mesh() const;
  /// The number of workers that the mesh implies: the product of its sizes, with 1 for those that are 0.
  std::int64_t workers_of_mesh() const;
  /// The workers along the data axis; all of them if no other axis is set. ConfigError if the mesh does not multiply to `workers`.
  std::int64_t data_workers() const;
};

/// [comm] of a recipe: how workers communicate, and how gradients are compressed.
struct CommSection : comm::CommConfig {
  std::string compression = "none";
  std::string gradient_dtype = "fp32";  // in which they are sent
  void describe(Section& section);
};

/// [compare] of a recipe: what `paceline compare` runs (entrants.h).
struct CompareConfig {
  std::string algorithms = "sgd; ssgd; asgd; dc_asgd; lc_asgd";
  std::vector<std::int64_t> workers = {4};
  std::vector<std::int64_t> seeds = {1};
  std::string clocks;                              // labels with settings; empty: [timing] as it is
  std::string grid;                                // settings with several values, from which every algorithm chooses
  std::int64_t widen = 0;                          // how often to extend a grid whose best point lies at its edge
  std::int64_t held_out = 5000;                    // training samples held out for the choices
  std::vector<std::int64_t> tuning_seeds = {101};  // of the tuning runs; not among `seeds`, so that final runs are independent
  std::string references;                          // labels with which the others are compared, seed by seed
  std::vector<double> accuracies;                  // in percent: the report says when they were reached
  void describe(Section& section);
};

struct Recipe {
  graph::ModelConfig model;
  data::DataConfig data;
  optim::OptimConfig optim;
  optim::ScheduleConfig schedule;
  TrainConfig train;
  strategies::StrategyConfig strategy;
  ParallelConfig parallel;
  CommSection comm;
  compress::CompressConfig compress;
  ps::PsConfig ps;
  ps::TimingConfig timing;
  CompareConfig compare;

  /// The built-in demonstration: what `paceline train` runs without arguments.
  static Recipe demonstration();

  /// All sections, bound to this recipe, which must outlive the result.
  Config config();

  /// Its parameter server, without the processes; nullopt if the strategy has none.
  std::optional<central::Settings> servers() const;
  /// How many workers one trainer runs: all of them with a parameter server, otherwise one.
  std::int64_t workers_per_trainer() const { return servers() ? std::max<std::int64_t>(parallel.workers, 1) : 1; }
};

/// Checks that no single field can make: more workers than the strategy supports, a batch that they cannot share, more micro-batches than
/// samples, incomplete schedules.
void validate(const Recipe& recipe);

/// How many different samples a batch has if the recipe asks for `batch`. Usually the same number, but data.uneven=pad rounds up the
/// minibatches of a parameter server, whose workers share no batch. ConfigError names the nearest batches that can be divided if
/// data.uneven=refuse.
std::int64_t shared_batch(const Recipe& recipe, std::int64_t batch);

/// The settings apart from the model on which a worker's part of a run depends: "key=value" lines, for processes of a parameter server to
/// compare.
std::string terms_of(const Recipe& recipe);

/// The graph for a dataset: what the recipe leaves open in [model] (input, classes) follows from the data.
graph::Graph graph_for(const graph::ModelConfig& model, const data::Info& info);

}  // namespace paceline::train
