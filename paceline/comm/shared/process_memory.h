// The memory of processes of one host. Each has one memory file (memfd) from which it allocates, and maps the files of the others through
// /proc: there is no name in any file system, so that nothing is left behind, not even after a kill -9.
#pragma once

#include <functional>

#include "paceline/comm/shared/memory.h"

namespace paceline::comm::shared {

/// Tells every rank of a world a short text of this one, and returns everybody's, by rank.
using Exchange = std::function<std::vector<std::string>(const std::string& own)>;

/// The ranks of a world that share this process's host, and their memory.
struct Neighbours {
  std::vector<int> hosts;              // of every rank of the world, by number
  std::vector<int> ranks;              // of this host, ascending
  std::shared_ptr<HostMemory> memory;  // calls them 0, 1, … in this order
  Location block;                      // of `block_bytes`, for their group
};

/// How large the file of each of a host's ranks is: as much as the machine has memory, since pages come into being when they are touched,
/// but every rank maps the files of all, and together they must find room among the addresses of a process.
std::int64_t reserved_bytes(std::int64_t machine, int ranks);

/// Collective among all ranks of the world. `block_bytes(n)` is what a host of n ranks needs.
Neighbours meet_neighbours(int rank, const Exchange& exchange, const std::function<std::int64_t(int)>& block_bytes);

}  // namespace paceline::comm::shared
