// The workers of this process: one Trainer each, as threads that share the datasets. Usually one; several if workers are threads of one
// process (a plain start), or if each of several processes has more than one.
#pragma once

#include <functional>

#include "paceline/comm/world.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/trainer.h"

namespace paceline::train {

/// The recipe as the processes of `world` run it: how many workers, with which strategy. ConfigError if that is not possible.
/// strategy.name=plan stays: Workers plans once its processes are connected. `workload`: what the mesh that a refusal advises must suit.
Recipe resolve_for(const Recipe& recipe, const comm::World& world, const Workload& workload = {});

/// A recipe with strategy.name=plan as worker 0 of such processes would plan it, for display.
Recipe planned_for(const Recipe& recipe, const comm::World& world, const Workload& workload);

class Workers {
 public:
  struct Environment {
    observe::Bus& bus;
    const Clock& clock;
    const std::atomic<bool>& stop;
    ps::Cluster cluster = {};
    const FoundCheckpoint* from = nullptr;  // to continue from, while the workers are made
    Workload workload = {};
    Nanoseconds began = Nanoseconds(0);  // when the program was started; 0: when the trainers are made
  };

  /// Connects the workers and creates their trainers; invalid settings are refused here, before anything is written. parallel.workers of
  /// `recipe` may be 0: one for each process of `world`. With strategy.name=plan, worker 0 plans and recipe() has its plan.
  Workers(const Recipe& recipe, const comm::World& world, const Environment& around);
  ~Workers();

  bool leads() const { return world_.rank == 0; }  // the process with worker 0
  const Recipe& recipe() const { return recipe_; }
  /// Trains to the end. If several workers fail, the error is that of the one that failed on its own, not of those that missed it.
  observe::RunEnded run(const std::filesystem::path& folder);

 private:
  void take_plan();
  /// Calls body(index) for every worker of this process, each in its own thread if there are several.
  void for_each_worker(const std::function<void(std::size_t)>& body);

  Recipe recipe_;
  comm::World world_;
  Environment around_;
  int here_ = 1;                // workers of this process
  int threads_ = 1;             // of each
  bool gpu_by_number_ = false;  // each worker uses the GPU of its number on its host
  Datasets datasets_;
  std::vector<std::unique_ptr<comm::Communicator>> comms_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

}  // namespace paceline::train
