// All registries side by side: what `paceline list`, the completions and the tables in docs/ show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/registry.h"

namespace paceline::cli {

struct Column {
  std::string_view name, value;
};

struct Shelf {
  std::string_view name;
  std::vector<Listing> rows;
  std::vector<std::vector<Column>> more = {};  // by row, in the JSON alone
};

std::vector<Shelf> catalog();

/// A key of a recipe, with its default as TOML writes it.
struct RecipeKey {
  std::string key, type, value, allowed, help;  // key: "section.key"
};

/// Every key of every section, in the order of the resolved recipe.
std::vector<RecipeKey> recipe_keys();

}  // namespace paceline::cli
