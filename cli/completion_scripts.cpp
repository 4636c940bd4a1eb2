// The completions of three shells. Each script completes commands as the second word, a recipe's values after "=", and a command's
// arguments, flags and files everywhere else.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "completion_words.h"

namespace paceline::cli {
namespace {

std::string names_of(const CompletionWords& words) {
  std::string names;
  for (const CompletionCommand& command : words.commands) names += " " + command.name;
  return names;
}

/// "--workers --mesh …", and the words.
std::string plain_words(const CompletionCommand& command) {
  std::string list;
  for (const CompletionFlag& flag : command.flags) list += " --" + flag.name;
  for (const std::string& word : command.words) list += " " + word;
  return list;
}

/// "optim.name= …": the keys that a command accepts.
std::string key_words(const CompletionWords& words, const CompletionCommand& command) {
  std::string list;
  for (const CompletionKey& key : words.keys)
    if (command.takes_keys || (command.takes_model_keys && key.key.starts_with("model."))) list += fmt::format(" {}=", key.key);
  return list;
}

/// The lines of a `case`, each made by `line` from a key and its values.
std::string value_cases(const CompletionWords& words, const char* line) {
  std::string cases;
  for (const CompletionKey& key : words.keys)
    if (!key.values.empty()) cases += fmt::format(fmt::runtime(line), key.key, fmt::join(key.values, " "));
  return cases;
}

/// "data.root|model.weights"
std::string file_keys(const CompletionWords& words) {
  std::string list;
  for (const CompletionKey& key : words.keys)
    if (key.file) list += (list.empty() ? "" : "|") + key.key;
  return list;
}

std::string commands_with_files(const CompletionWords& words, const char* between) {
  std::vector<std::string> names;
  for (const CompletionCommand& command : words.commands)
    if (command.takes_files) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, between));
}

/// Quotes a text for fish, in single quotes.
std::string quoted(std::string text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c == '\n' ? ' ' : c);
  return out + "'";
}

}  // namespace

std::string bash_completions(const CompletionWords& words) {
  std::string cases;
  for (const CompletionCommand& command : words.commands)
    cases += fmt::format("    {}) words=\"{}{}\" ;;\n", command.name, plain_words(command), key_words(words, command));
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
  case "${{COMP_WORDS[1]}}" in {}) _paceline_files "" "$current" ;; esac
  if [ "${{#COMPREPLY[@]}}" -eq 1 ] && [[ "${{COMPREPLY[0]}}" == *= ]]; then compopt -o nospace; fi
}}
complete -F _paceline paceline
)",
                     names_of(words), value_cases(words, "      {}) words=\"{}\" ;;\n"), file_keys(words), cases,
                     commands_with_files(words, "|"));
}

std::string zsh_completions(const CompletionWords& words) {
  std::string commands, cases;
  for (const CompletionCommand& command : words.commands) {
    std::string help = command.help;
    std::erase(help, '\'');
    std::erase(help, ':');
    commands += fmt::format(" '{}:{}'", command.name, help);
    const std::string keys = key_words(words, command);
    cases += fmt::format("    {}) compadd --{}", command.name, plain_words(command));
    if (!keys.empty()) cases += fmt::format("; compadd -S '' --{}", keys);
    if (command.takes_files) cases += "; _files";
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef paceline
# zsh completions of paceline: `paceline completions zsh` as a file _paceline in a folder of $fpath, or sourced after compinit.
_paceline() {{
  local current="${{words[CURRENT]}}"
  local -a commands
  if (( CURRENT == 2 )); then
    commands=({})
    _describe command commands
    return
  fi
  if [[ "$current" == *=* ]]; then
    compset -P '*='
    case "${{current%%=*}}" in
{}      {}) _files ;;
    esac
    return
  fi
  case "${{words[2]}}" in
{}  esac
}}
if [ "${{funcstack[1]}}" = _paceline ]; then _paceline "$@"; else compdef _paceline paceline; fi
)",
                     commands, value_cases(words, "      {}) compadd -- {} ;;\n"), file_keys(words), cases);
}

std::string fish_completions(const CompletionWords& words) {
  std::string out = "# fish completions of paceline; use: paceline completions fish | source\ncomplete -c paceline -f\n";
  for (const CompletionCommand& command : words.commands) {
    out += fmt::format("complete -c paceline -n __fish_use_subcommand -a {} -d {}\n", command.name, quoted(command.help));
    const std::string seen = fmt::format("complete -c paceline -n '__fish_seen_subcommand_from {}'", command.name);
    for (const CompletionFlag& flag : command.flags)
      out += fmt::format("{} -l {} -d {}{}\n", seen, flag.name, quoted(flag.help), flag.takes_value ? " -r" : "");
    if (!command.words.empty()) out += fmt::format("{} -a '{}'\n", seen, fmt::join(command.words, " "));
  }
  // fish completes whole words: every key with every value.
  const auto takers = [&](bool model) {
    std::vector<std::string> names;
    for (const CompletionCommand& command : words.commands)
      if (command.takes_keys || (model && command.takes_model_keys)) names.push_back(command.name);
    return fmt::format("complete -c paceline -n '__fish_seen_subcommand_from {}'", fmt::join(names, " "));
  };
  for (const CompletionKey& key : words.keys) {
    std::string choices = key.key + "=";
    for (const std::string& value : key.values) choices += fmt::format(" {}={}", key.key, value);
    out += fmt::format("{} -a '{}'\n", takers(key.key.starts_with("model.")), choices);
  }
  return out + fmt::format("complete -c paceline -n '__fish_seen_subcommand_from {}' -F\n", commands_with_files(words, " "));
}

}  // namespace paceline::cli
