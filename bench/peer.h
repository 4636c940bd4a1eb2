// Peers that are programs in Python with PyTorch: bench/peers/*.py. Each prints one JSON object.
#pragma once

#include <initializer_list>
#include <utility>

#include "benchmark.h"

namespace paceline::bench {

/// The Python of the peers. A python3 that comes first in PATH (pyenv, conda) often is not the one that has Debian's PyTorch.
std::string python_with_torch(const Options& options);

/// The same, and empty, with a line in the log, where neither has it and nobody named one.
std::string python_if_any(const Options& options);

/// What bench/peers/`script` prints when it is given these words.
nlohmann::json run_peer(const std::string& python, const std::string& script, const std::vector<std::string>& words);
/// The same, with words such as --width 256.
nlohmann::json run_peer_with(const std::string& python, const std::string& script,
                             std::initializer_list<std::pair<const char*, std::int64_t>> numbers);

/// PyTorch's counterparts of ZeRO's stages. `mode`: as bench/peers/pytorch_zero.py has it.
struct ZeroPeer {
  const char *mode, *name;
  int stage;
};
inline constexpr ZeroPeer kZeroPeers[] = {{"ddp", "DistributedDataParallel", 0},
                                          {"zero_redundancy_optimizer", "ZeroRedundancyOptimizer", 1},
                                          {"fsdp", "FullyShardedDataParallel", 3}};

}  // namespace paceline::bench
