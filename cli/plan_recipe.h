// What `paceline plan` is asked about: the recipe that its words make, and which of its settings a plan keeps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "paceline/train/recipe.h"

namespace paceline::cli {

/// Whether a word sets the key.
bool says(const std::vector<std::string>& words, const std::string& key);

/// The words as settings: a network's key stands for a recipe of it with Adam, for data that are drawn at random.
std::vector<std::string> plan_words(const std::vector<std::string>& words);

/// Settings for data of the form that the network takes, where the words name a network alone: a run of the plan then trains what was
/// planned. Of text the file is left open.
std::vector<std::string> data_words(const graph::Graph& graph, const std::vector<std::string>& words);

/// Sizes that the words fix, as parallel.tensor=1; a recipe's own mesh is what is being asked for.
std::map<std::string, std::int64_t> fixed_sizes(const std::vector<std::string>& words, const train::Recipe& recipe);

/// ConfigError where the words ask for something that no plan would keep.
void refuse_not_kept(const std::vector<std::string>& words, const train::Recipe& recipe);
/// What a recipe's file asks for and no plan keeps.
std::vector<std::string> notes_on(const train::Recipe& recipe);

}  // namespace paceline::cli
