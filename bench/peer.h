// Peers that are programs in Python with PyTorch: bench/peers/*.py. Each prints one JSON object.
#pragma once

#include "benchmark.h"

namespace paceline::bench {

/// The Python of the peers. A python3 that comes first in PATH (pyenv, conda) often is not the one that has Debian's PyTorch.
std::string python_with_torch(const Options& options);

/// The same, and empty, with a line in the log, where neither has it and nobody named one.
std::string python_if_any(const Options& options);

/// What bench/peers/`script` prints when it is given these words.
nlohmann::json run_peer(const std::string& python, const std::string& script, const std::vector<std::string>& words);

}  // namespace paceline::bench
