// The processes of a parameter server other than server 0: workers, which compute the minibatches that server 0 assigns, and the servers of
// the other ranges of the arena. Server 0 is a Trainer like any other (central/processes_executor.cpp).
#pragma once

#include <atomic>

#include "paceline/ps/cluster.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::train {

/// The recipe of a process of `cluster`, with its numbers of servers and workers, on the CPU. ConfigError if its strategy has no parameter
/// server, its executor has no processes, or its device is a GPU. Unchanged without a cluster.
Recipe recipe_for(const Recipe& recipe, const ps::Cluster& cluster);

/// Computes until there is no more work, or `stop`. Returns the number of minibatches that it finished. `resumed`: the checkpoint from
/// which the run is resumed; null for a new run. A restarted worker continues without the state that the checkpoint has of it.
std::int64_t run_remote_worker(const Recipe& recipe, const Workload& workload, const ps::Cluster& cluster, const std::atomic<bool>& stop,
                               const Checkpoint* resumed = nullptr);

/// Serves until `stop`, or until all workers have left for good.
void run_remote_server(const Recipe& recipe, const Workload& workload, const ps::Cluster& cluster, const std::atomic<bool>& stop,
                       const Checkpoint* resumed = nullptr);

}  // namespace paceline::train
