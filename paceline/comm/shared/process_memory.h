// The memory of the processes of one host. Each has one memory file (memfd) from which it allocates, and maps the files of the others
// through /proc. The files have no name in any file system, so nothing is left behind, not even after a kill -9.
#pragma once

#include <functional>

#include "paceline/comm/shared/memory.h"

namespace paceline::comm::shared {

/// Sends a short text to every rank of a world, and returns everyone's, by rank.
using Exchange = std::function<std::vector<std::string>(const std::string& own)>;

/// The ranks of a world that share this process's host, and their memory.
struct Neighbours {
  std::vector<int> hosts;              // of every rank of the world, by number
  std::vector<int> ranks;              // of this host, ascending
  std::shared_ptr<HostMemory> memory;  // numbers them 0, 1, … in this order
  Location block;                      // of `block_bytes`, for their group
};

/// The size of each rank's file: as much as the machine has memory, since pages are committed only when touched, but every rank maps the
/// files of all, and together they must fit into the address space of a process.
std::int64_t reserved_bytes(std::int64_t machine, int ranks);

/// Collective among all ranks of the world. `block_bytes(n)` is what a host of n ranks needs.
Neighbours meet_neighbours(int rank, const Exchange& exchange, const std::function<std::int64_t(int)>& block_bytes);

}  // namespace paceline::comm::shared
