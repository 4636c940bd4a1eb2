// What shells complete: the commands with their flags and arguments, and a recipe's keys with the values that may follow "=". Generated
// from the commands, the registries and the recipe, so it is always up to date.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace paceline::cli {

struct CompletionFlag {
  std::vector<std::string> names;  // with their dashes, the long one first
  std::string help;
  bool takes_value = false, takes_file = false;
  std::vector<std::string> values;  // that are known
};

struct CompletionCommand {
  std::string name, help;  // name: "checkpoint", or of a command's own command "checkpoint show"
  std::vector<CompletionFlag> flags;
  std::vector<std::string> words;  // its own commands, and values of arguments

  bool is_nested() const { return name.find(' ') != std::string::npos; }
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
