// What shells complete: the commands with their flags and arguments, and a recipe's keys with the values that may follow "=". Generated
// from the commands, the registries and the recipe, so it is always up to date.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace paceline::cli {

struct CompletionFlag {
  std::string name, help;  // without leading dashes
  bool takes_value = false;
};

struct CompletionCommand {
  std::string name, help;
  std::vector<CompletionFlag> flags;
  std::vector<std::string> words;  // subcommands, and keys of registries
  bool takes_keys = false, takes_model_keys = false, takes_files = false;
};

struct CompletionKey {
  std::string key;
  std::vector<std::string> values;
  bool file = false;  // the value may be a file name
};

struct CompletionWords {
  std::vector<CompletionCommand> commands;
  std::vector<CompletionKey> keys;
};

CompletionWords completion_words(const CLI::App& root);

std::string bash_completions(const CompletionWords& words);
std::string zsh_completions(const CompletionWords& words);
std::string fish_completions(const CompletionWords& words);

}  // namespace paceline::cli
