// All registries side by side: what `paceline list`, the completions and the tables in docs/ show.
#pragma once

#include <string_view>
#include <vector>

#include "paceline/base/registry.h"

namespace paceline::cli {

struct Shelf {
  std::string_view name;
  std::vector<Listing> rows;
};

std::vector<Shelf> catalog();

}  // namespace paceline::cli
