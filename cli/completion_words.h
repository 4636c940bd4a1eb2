// What shells complete: the commands with their flags and words, and a recipe's keys with what may stand behind their "=". Made from the
// commands, the registries and the recipe, so it cannot fall behind them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace paceline::cli {

struct CompletionFlag {
  std::string name, help;  // without its dashes
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
  bool file = false;  // its value may be the name of one
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
