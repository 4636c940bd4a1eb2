// How a process or thread becomes a rank: it gets a communicator to the other ranks of its job.
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/world.h"

namespace paceline::comm {

/// This process's communicator among the ranks of `world`. "auto" selects the fastest engine that can connect them.
std::unique_ptr<Communicator> connect(const CommConfig& config = {}, const World& world = discover());

/// For ranks that are threads of this process: communicator i belongs to the thread that acts as rank i.
std::vector<std::unique_ptr<Communicator>> local_group(int size, const CommConfig& config = {});

}  // namespace paceline::comm
