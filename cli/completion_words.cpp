#include "completion_words.h"

#include <algorithm>
#include <map>
#include <set>

#include "bench/names.h"
#include "catalog.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {
namespace {

bool everything(const CLI::App*) { return true; }

/// The flags of a command and its subcommands, each once; the names of subcommands become words.
void add_flags(const CLI::App& app, CompletionCommand& command) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (std::ranges::find(command.flags, name, &CompletionFlag::name) == command.flags.end())
        command.flags.push_back({name, option->get_description(), option->get_items_expected_max() > 0});
  for (const CLI::App* sub : app.get_subcommands(everything)) {
    command.words.push_back(sub->get_name());
    add_flags(*sub, command);
  }
}

std::vector<std::string> keys_of(const auto& rows) {
  std::vector<std::string> words;
  for (const auto& row : rows) words.emplace_back(row.key);
  return words;
}

std::vector<CompletionKey> all_keys() {
  std::vector<CompletionKey> keys;
  train::Recipe recipe;
  const Config config = recipe.config();
  for (const Section& section : config.sections())
    for (const Field& field : section.fields()) {
      CompletionKey key{section.name() + "." + field.key(), {}, false};
      if (field.type() == "boolean") key.values = {"true", "false"};
      else if (!field.choices().empty()) key.values.assign(field.choices().begin(), field.choices().end());
      else key.file = field.type() == "text";
      keys.push_back(std::move(key));
    }
  return keys;
}

}  // namespace

CompletionWords completion_words(const CLI::App& root) {
  std::map<std::string_view, std::vector<std::string>> more;
  std::vector<std::string> lists = {"keys"};
  for (const Shelf& shelf : catalog()) {
    lists.emplace_back(shelf.name);
    if (shelf.name == "networks") more["graph"] = keys_of(shelf.rows);
    if (shelf.name == "collectives") more["algorithm"] = keys_of(shelf.rows);
  }
  more["list"] = lists;
  more["bench"] = keys_of(bench::kNames);
  more["run"] = {"train", "bench"};
  more["completions"] = {"bash", "zsh", "fish"};
  for (const CLI::App* sub : root.get_subcommands(everything))
    if (sub->get_name() != "help") more["help"].push_back(sub->get_name());

  CompletionWords words;
  words.keys = all_keys();
  const std::set<std::string_view> with_keys = {"train", "compare", "scale", "run", "evaluate", "predict", "sample"},
                                   with_files = {"checkpoint", "tokenize"};
  for (const CLI::App* sub : root.get_subcommands(everything)) {
    CompletionCommand command{sub->get_name(), sub->get_description(), {}, {}};
    add_flags(*sub, command);
    if (const auto own = more.find(command.name); own != more.end())
      command.words.insert(command.words.end(), own->second.begin(), own->second.end());
    command.takes_keys = with_keys.contains(command.name);
    command.takes_model_keys = command.name == "graph";
    command.takes_files = command.takes_keys || with_files.contains(command.name);
    words.commands.push_back(std::move(command));
  }
  return words;
}

}  // namespace paceline::cli
