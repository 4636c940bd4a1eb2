// What `paceline plan` is asked: the recipe that its arguments describe, and which of its settings a plan keeps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "paceline/train/recipe.h"

namespace paceline::cli {

/// Whether an argument sets this key.
bool says(const std::vector<std::string>& words, const std::string& key);

/// The arguments as settings. A network's key means a recipe of that network with Adam, on random data.
std::vector<std::string> plan_words(const std::vector<std::string>& words);

/// Settings for data of the shape that the network takes, if the arguments name only a network, so that running the plan trains what was
/// planned. For text, the file is left open.
std::vector<std::string> data_words(const graph::Graph& graph, const std::vector<std::string>& words);

/// Sizes that the arguments fix, such as parallel.tensor=1. The mesh of a recipe's file is not fixed: finding one is the question.
std::map<std::string, std::int64_t> fixed_sizes(const std::vector<std::string>& words, const train::Recipe& recipe);

/// ConfigError if the arguments ask for something that no plan would keep.
void refuse_not_kept(const std::vector<std::string>& words, const train::Recipe& recipe);
/// The settings of a recipe's file that no plan keeps.
std::vector<std::string> notes_on(const train::Recipe& recipe);

}  // namespace paceline::cli
