// Whether a word of the command line names a built-in network.
#pragma once

#include <algorithm>
#include <string>

#include "paceline/graph/registry.h"

namespace paceline::cli {

inline bool names_network(const std::string& word) {
  return std::ranges::any_of(graph::networks(), [&](const auto& row) { return row.key == word; });
}

}  // namespace paceline::cli
