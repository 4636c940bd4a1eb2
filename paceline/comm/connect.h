// How a process becomes a rank: the communicator among the processes of a job, or among threads.
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/world.h"

namespace paceline::comm {

/// This process's communicator among the ranks of `world`. "auto" takes the fastest engine that can carry it.
std::unique_ptr<Communicator> connect(const CommConfig& config = {}, const World& world = discover());

/// Ranks that are threads of this process: communicator i is for the thread that plays rank i.
std::vector<std::unique_ptr<Communicator>> local_group(int size, const CommConfig& config = {});

}  // namespace paceline::comm
