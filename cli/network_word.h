// Networks on the command line: arguments that name one, and the network that a command is about.
#pragma once

#include <string>
#include <vector>

#include "paceline/train/recipe.h"

namespace paceline::cli {

/// Whether an argument names a built-in network.
bool names_network(const std::string& word);

/// ConfigError, with the nearest network, for an argument that is neither a setting nor a file, nor names a network.
void refuse_unknown_networks(const std::vector<std::string>& words);

/// The recipe's network for its data, whose files must exist; no random samples are generated instead.
graph::Graph network_for_data(const train::Recipe& recipe);

/// Whether the arguments describe a network without data: one of them names it or sets its input, and none sets the data.
bool is_by_itself(const std::vector<std::string>& words);

/// The network that a command's arguments describe: by itself, or for the recipe's data.
graph::Graph network_of(const train::Recipe& recipe, const std::vector<std::string>& words);

}  // namespace paceline::cli
