// Runs whose servers and workers share nothing but messages. They are ranks of a communicator here, each a thread with a recipe of its own;
// tests/cli has them as processes.
#pragma once

#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/train/remote_processes.h"
#include "runs.h"

namespace paceline::train {

struct Fleet {
  int servers = 1, workers = 2;
};

inline Recipe recipe_for_ranks(const std::string& strategy, int workers = 2) {
  Recipe recipe = tiny_recipe();
  recipe.strategy.name = strategy;
  recipe.optim.momentum = 0;
  recipe.parallel.workers = workers;
  recipe.ps.executor = "processes", recipe.ps.transport = "mpi";
  recipe.ps.deadline_s = 5;
  return recipe;
}

struct FleetRun {
  std::filesystem::path folder;
  bool resume = false;                                    // from the newest checkpoint there
  std::int64_t stop_after = 0;                            // steps; 0: to the end
  std::unique_ptr<observe::Listener> listener = nullptr;  // of server 0
  std::string job = {};                                   // as a launcher that restarts servers would name it
  Workload workload = {};                                 // of a user's
};

/// Server 0, which leads, the other servers, and workers.
inline observe::RunEnded train_among_ranks(const Recipe& recipe, const Fleet& fleet, FleetRun run) {
  std::vector<std::shared_ptr<comm::Communicator>> ranks;
  for (auto& rank : comm::local_group(fleet.servers + fleet.workers)) ranks.push_back(std::move(rank));
  const auto cluster = [&](int rank) {
    ps::Cluster made = ps::among(ranks[static_cast<std::size_t>(rank)], fleet.servers);
    made.job = run.job, made.runs = run.folder.string();
    return made;
  };
  observe::Bus bus;
  if (run.listener) bus.add(std::move(run.listener));
  const SteadyClock clock;
  std::atomic<bool> stop = false;
  const std::atomic<bool> stays = false;
  if (run.stop_after > 0) bus.add(std::make_unique<StopAfter>(run.stop_after, stop));
  std::optional<FoundCheckpoint> from;
  if (run.resume) from = newest_good_checkpoint(run.folder);
  const Checkpoint* resumed = from ? &from->second : nullptr;
  std::vector<std::jthread> others;  // outlive the trainer, which tells them that there is no more work
  Trainer trainer(
      recipe, {.bus = bus, .clock = clock, .stop = stop, .cluster = cluster(0), .from = from ? &*from : nullptr, .workload = run.workload});
  for (int rank = 1; rank < fleet.servers + fleet.workers; ++rank)
    others.emplace_back([&, rank] {
      try {
        if (rank < fleet.servers) run_remote_server(recipe, run.workload, cluster(rank), stays, resumed);
        else run_remote_worker(recipe, run.workload, cluster(rank), stays, resumed);
      } catch (const Error& problem) {
        ADD_FAILURE() << "rank " << rank << ": " << problem.what();
      }
    });
  return trainer.run(run.folder);
}

inline observe::RunEnded train_among_ranks(const Recipe& recipe, const Fleet& fleet = {}) {
  const Folder folder;
  return train_among_ranks(recipe, fleet, {.folder = folder.path()});
}

}  // namespace paceline::train
