// paceline completions bash: made from the commands, the registries and the recipe's keys, so it cannot fall behind them.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "catalog.h"
#include "command.h"
#include "paceline/base/error.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {
namespace {

std::string flags_of(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words += " --" + name;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) words += " " + sub->get_name();
  return words;
}

std::string bash_script(const CLI::App& root) {
  std::string keys, lists = " keys", cases, commands;
  std::map<std::string_view, std::string> rows;  // by shelf
  train::Recipe recipe;
  const Config config = recipe.config();
  for (const Section& section : config.sections())
    for (const Field& field : section.fields()) keys += fmt::format(" {}.{}=", section.name(), field.key());
  for (const Shelf& shelf : catalog()) {
    lists += fmt::format(" {}", shelf.name);
    for (const Listing& row : shelf.rows) rows[shelf.name] += fmt::format(" {}", row.key);
  }
  for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; })) {
    commands += " " + sub->get_name();
    std::string words = flags_of(*sub);
    if (sub->get_name() == "train" || sub->get_name() == "scale") words += keys;
    if (sub->get_name() == "graph") words += rows["networks"];
    if (sub->get_name() == "algorithm") words += rows["collectives"];
    if (sub->get_name() == "list") words += lists;
    cases += fmt::format("    {}) words=\"{}\" ;;\n", sub->get_name(), words);
  }
  return fmt::format(R"(# bash completions of paceline; use: source <(paceline completions bash)
_paceline() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{}" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  case "${{COMP_WORDS[1]}}" in train|checkpoint) COMPREPLY+=($(compgen -f -- "$current")) ;; esac
  if [ "${{#COMPREPLY[@]}}" -eq 1 ] && [[ "${{COMPREPLY[0]}}" == *= ]]; then compopt -o nospace; fi
}}
complete -F _paceline paceline
)",
                     commands, cases);
}

}  // namespace

Action add_completions(CLI::App& app) {
  struct Flags {
    std::string shell = "bash";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("SHELL", flags->shell, "bash")->capture_default_str();
  add_json_flag(app, flags->json);
  add_examples(app, {"source <(paceline completions bash)"});
  const CLI::App* root = app.get_parent();
  return [flags, root] {
    if (flags->shell != "bash") throw ConfigError("completions are there for bash, not for '" + flags->shell + "'");
    if (flags->json) print_json({{"shell", flags->shell}, {"script", bash_script(*root)}});
    else std::cout << bash_script(*root);
    return kDone;
  };
}

}  // namespace paceline::cli
