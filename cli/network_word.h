// Networks on the command line: words that name one, and the network that a command is about.
#pragma once

#include <string>
#include <vector>

#include "paceline/train/recipe.h"

namespace paceline::cli {

/// Whether a word of the command line names a built-in network.
bool names_network(const std::string& word);

/// The recipe's network for its data, whose files must be there; random samples are not made.
graph::Graph network_for_data(const train::Recipe& recipe);

/// Whether the words are about a network as it is by itself: one of them names it, or says its input, and none says which data there are.
bool is_by_itself(const std::vector<std::string>& words);

/// The network that the words of a command are about: by itself, or for the recipe's data.
graph::Graph network_of(const train::Recipe& recipe, const std::vector<std::string>& words);

}  // namespace paceline::cli
