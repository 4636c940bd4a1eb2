// The trainer: epochs, evaluation, checkpoints, and events for listeners. It contains no strategy's name.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>

#include "paceline/base/clock.h"
#include "paceline/base/error.h"
#include "paceline/comm/communicator.h"
#include "paceline/observe/event.h"
#include "paceline/ps/cluster.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/datasets.h"
#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::train {

/// The loss, or a parameter, is no longer finite: the recipe must change.
class Diverged : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

class Trainer {
 public:
  struct Environment {
    observe::Bus& bus;  // receives all events of worker 0, and only spans from the others
    const Clock& clock;
    const std::atomic<bool>& stop;          // set by a signal: checkpoint at the next step and leave
    comm::Communicator* comm = nullptr;     // the workers, of which this trainer is one; null: alone
    const Datasets* datasets = nullptr;     // of a process whose workers share them; null: the trainer makes its own
    int threads = 0;                        // of this worker; 0: as the recipe says
    ps::Cluster cluster = {};               // ps.executor=processes
    const FoundCheckpoint* from = nullptr;  // to continue from; only the constructor reads it, and model.weights is not read then
    Workload workload = {};                 // what is trained, if not the recipe's network on the recipe's dataset
    Nanoseconds began = Nanoseconds(0);     // when the program was started; 0: when the trainer is made
    bool predicts = true;                   // predict the time of a step before the run, if the machine's speed is known
  };

  /// Creates datasets, module and strategy, in their initial state or that of the checkpoint. All errors that can be detected before
  /// training are thrown here, before anything is written.
  Trainer(const Recipe& recipe, const Environment& environment);
  ~Trainer();

  /// Trains to the end, or to the next step after any worker's `stop` was set; checkpoints go into the run's `folder`, which worker 0
  /// writes. Diverged if the loss is no longer finite, Error if the run was stopped and no checkpoint could be written.
  observe::RunEnded run(const std::filesystem::path& folder);

  const data::Dataset& training_data() const;
  nn::Model& module();

 private:
  struct Impl;  // trainer_impl.h
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::train
