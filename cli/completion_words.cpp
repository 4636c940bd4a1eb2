#include "completion_words.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "bench/names.h"
#include "catalog.h"
#include "paceline/program/help_format.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {
namespace {

using namespace program;

constexpr const char* kHelp = "help";

bool everything(const CLI::App*) { return true; }

/// The rows of the registry that a flag names: "clusters" for --cluster, "networks" for --networks.
std::vector<std::string> registry_of(const std::string& flag) {
  const std::string name = flag == "algorithms" ? "collectives" : flag;
  std::vector<std::string> keys;
  for (const Shelf& shelf : catalog())
    if (shelf.name == name || shelf.name == name + "s")
      for (const Listing& row : shelf.rows) keys.emplace_back(row.key);
  return keys;
}

CompletionFlag flag_of(const CLI::Option& option) {
  CompletionFlag flag{{}, option.get_description(), option.get_items_expected_max() > 0, false, values_of(option)};
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  if (std::ranges::find(flag.names, "-n") != flag.names.end()) flag.names.emplace_back("-np");
  const std::string word = value_word(option);
  flag.takes_file = word.find(kFile) != std::string::npos || word.find(kFolder) != std::string::npos;
  if (flag.takes_value && flag.values.empty()) flag.values = registry_of(option.get_lnames().front());
  return flag;
}

/// A command with its flags and what may follow it; its own commands are added behind it.
void add_commands(const CLI::App& app, const std::string& name, std::vector<CompletionCommand>& commands) {
  CompletionCommand command{name, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // not shown in the help either
    if (!option->get_positional()) command.flags.push_back(flag_of(*option));
    else std::ranges::copy(values_of(*option), std::back_inserter(command.words));
  }
  const auto subs = app.get_subcommands(everything);
  for (const CLI::App* sub : subs) command.words.push_back(sub->get_name());
  commands.push_back(std::move(command));
  for (const CLI::App* sub : subs) add_commands(*sub, name + " " + sub->get_name(), commands);
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

  CompletionWords words;
  words.keys = all_keys();
  const std::set<std::string_view> with_keys = {"train", "compare", "scale", "run", "evaluate", "predict", "sample"},
                                   with_files = {"tokenize", "checkpoint show", "checkpoint verify", "checkpoint convert"};
  for (const CLI::App* sub : root.get_subcommands(everything)) add_commands(*sub, sub->get_name(), words.commands);
  std::vector<CompletionCommand> helped;  // what may follow `help checkpoint`
  for (CompletionCommand& command : words.commands) {
    if (const auto own = more.find(command.name); own != more.end())
      command.words.insert(command.words.end(), own->second.begin(), own->second.end());
    command.takes_keys = with_keys.contains(command.name);
    command.takes_model_keys = command.name == "graph";
    command.takes_files = command.takes_keys || with_files.contains(command.name);
    if (!command.is_nested() && command.name != kHelp) more[kHelp].push_back(command.name);
  }
  for (const CLI::App* sub : root.get_subcommands(everything)) {
    CompletionCommand after_help{std::string(kHelp) + " " + sub->get_name(), {}, {}, {}};
    for (const CLI::App* own : sub->get_subcommands(everything)) after_help.words.push_back(own->get_name());
    if (!after_help.words.empty()) helped.push_back(std::move(after_help));
  }
  std::ranges::find(words.commands, kHelp, &CompletionCommand::name)->words = more[kHelp];
  std::ranges::move(helped, std::back_inserter(words.commands));
  return words;
}

}  // namespace paceline::cli
