// paceline completions bash: made from the commands, the registries and the recipe's keys, so it cannot fall behind them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/benchmark.h"
#include "catalog.h"
#include "command.h"
#include "paceline/base/error.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {
namespace {

/// The flags of a command and the commands below it, with theirs.
std::string flags_of(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words += " --" + name;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) words += " " + sub->get_name() + flags_of(*sub);
  return words;
}

std::string keys_of(const auto& rows) {
  std::string words;
  for (const auto& row : rows) words += fmt::format(" {}", row.key);
  return words;
}

/// The keys of a recipe: what they are called, and the lines of a `case` that say what may stand behind their "=".
struct Settings {
  std::string keys, model_keys, values, files;

  Settings() {
    train::Recipe recipe;
    const Config config = recipe.config();
    for (const Section& section : config.sections())
      for (const Field& field : section.fields()) add(section.name(), field);
  }

 private:
  void add(const std::string& section, const Field& field) {
    const std::string key = section + "." + field.key();
    keys += fmt::format(" {}=", key);
    if (section == "model") model_keys += fmt::format(" {}=", key);
    if (field.type() == "boolean") values += fmt::format("      {}) words=\"true false\" ;;\n", key);
    else if (!field.choices().empty()) values += fmt::format("      {}) words=\"{}\" ;;\n", key, fmt::join(field.choices(), " "));
    else if (field.type() == "text") files += (files.empty() ? "" : "|") + key;
  }
};

std::string bash_script(const CLI::App& root) {
  const Settings settings;
  std::map<std::string_view, std::string> shelves;
  for (const Shelf& shelf : catalog()) shelves[shelf.name] = keys_of(shelf.rows);
  std::string lists = " keys";
  for (const auto& [name, rows] : shelves) lists += fmt::format(" {}", name);
  const std::map<std::string_view, std::string> more = {{"train", settings.keys},
                                                        {"compare", settings.keys},
                                                        {"scale", settings.keys},
                                                        {"run", " train bench" + settings.keys},
                                                        {"graph", shelves["networks"] + settings.model_keys},
                                                        {"algorithm", shelves["collectives"]},
                                                        {"bench", keys_of(bench::benchmarks())},
                                                        {"list", lists},
                                                        {"completions", " bash"}};
  std::string cases, commands;
  for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; })) {
    const auto own = more.find(sub->get_name());
    commands += " " + sub->get_name();
    cases += fmt::format("    {}) words=\"{}{}\" ;;\n", sub->get_name(), flags_of(*sub), own == more.end() ? "" : own->second);
  }
  return fmt::format(R"(# bash completions of paceline; use: source <(paceline completions bash)
# Adds the files that begin with $2, behind $1. Readline quotes names, but every = too, so it may only where there is nothing else.
_paceline_files() {{
  local name
  local -a names
  mapfile -t names < <(compgen -f -- "$2")
  if [ -z "$1" ] && [ "${{#COMPREPLY[@]}}" -eq 0 ]; then
    COMPREPLY=("${{names[@]}}")
    compopt -o filenames
  else
    for name in "${{names[@]}}"; do
      printf -v name "%s%q" "$1" "$name"
      COMPREPLY+=("$name")
    done
  fi
}}
_paceline() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words="" key="" prefix=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "{}" -- "$current")
    return
  fi
  # A word with "=" in it comes in three pieces, unless COMP_WORDBREAKS was changed.
  if [ "$current" = "=" ]; then key="$before" current=""
  elif [ "$before" = "=" ]; then key="${{COMP_WORDS[COMP_CWORD-2]}}"
  elif [[ "$current" == *=* ]]; then key="${{current%%=*}}" prefix="${{current%%=*}}=" current="${{current#*=}}"
  fi
  if [ -n "$key" ]; then
    case "$key" in
{}      {}) _paceline_files "$prefix" "$current"; return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$current")
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  case "${{COMP_WORDS[1]}}" in train|compare|scale|run|checkpoint) _paceline_files "" "$current" ;; esac
  if [ "${{#COMPREPLY[@]}}" -eq 1 ] && [[ "${{COMPREPLY[0]}}" == *= ]]; then compopt -o nospace; fi
}}
complete -F _paceline paceline
)",
                     commands, settings.values, settings.files, cases);
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
