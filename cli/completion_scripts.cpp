// The completions of three shells. Each script completes commands as the second word, a recipe's values after "=", a flag's values after
// the flag, and a command's own commands, arguments, flags and files everywhere else.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "completion_words.h"

namespace paceline::cli {
namespace {

/// The names of commands: of `paceline` itself, or of commands.
std::vector<std::string> names_of(const CompletionWords& words, bool nested) {
  std::vector<std::string> names;
  for (const CompletionCommand& command : words.commands)
    if (command.is_nested() == nested) names.push_back(command.name);
  return names;
}

/// "--workers --mesh …", and the words.
std::string plain_words(const CompletionCommand& command) {
  std::string list;
  for (const CompletionFlag& flag : command.flags) list += " " + flag.names.front();
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

/// What follows the flags that take a value, as lines of a `case` of "command flag"; `line` is given the patterns and the commands that
/// `action` makes of a flag.
std::string flag_cases(const CompletionWords& words, const char* line, const auto& action) {
  std::string cases;
  for (const CompletionCommand& command : words.commands)
    for (const CompletionFlag& flag : command.flags) {
      if (!flag.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) patterns.push_back(fmt::format("\"{} {}\"", command.name, name));
      cases += fmt::format(fmt::runtime(line), fmt::join(patterns, "|"), action(flag));
    }
  return cases;
}

/// "checkpoint show"|"checkpoint verify"
std::string nested_names(const CompletionWords& words) { return fmt::format("\"{}\"", fmt::join(names_of(words, true), "\"|\"")); }

/// "data.root|model.weights"
std::string file_keys(const CompletionWords& words) {
  std::string list;
  for (const CompletionKey& key : words.keys)
    if (key.file) list += (list.empty() ? "" : "|") + key.key;
  return list;
}

std::vector<std::string> commands_with_files(const CompletionWords& words) {
  std::vector<std::string> names;
  for (const CompletionCommand& command : words.commands)
    if (command.takes_files) names.push_back(command.name);
  return names;
}

/// Quotes a text for fish, in single quotes.
std::string quoted(std::string text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c == '\n' ? ' ' : c);
  return out + "'";
}

/// The beginning of a rule of fish for some commands.
std::string fish_rule(const std::vector<std::string>& commands) {
  return fmt::format("complete -c paceline -n '__paceline_is \"{}\"'", fmt::join(commands, "\" \""));
}

/// A flag's names and values in fish's words.
std::string fish_flag(const CompletionFlag& flag) {
  std::string text;
  for (const std::string& name : flag.names) {
    if (name.starts_with("--")) text += " -l " + name.substr(2);
    else text += (name.size() > 2 ? " -o " : " -s ") + name.substr(1);
  }
  text += " -d " + quoted(flag.help);
  if (!flag.takes_value) return text;
  text += flag.takes_file ? " -r -F" : " -x";
  return flag.values.empty() ? text : text + fmt::format(" -a '{}'", fmt::join(flag.values, " "));
}

}  // namespace

std::string bash_completions(const CompletionWords& words) {
  std::string cases;
  for (const CompletionCommand& command : words.commands)
    cases += fmt::format("    \"{}\") words=\"{}{}\" ;;\n", command.name, plain_words(command), key_words(words, command));
  const std::string flags = flag_cases(words, "      {}) {} return ;;\n", [](const CompletionFlag& flag) {
    std::string action;
    if (!flag.values.empty()) action += fmt::format("_paceline_words \"$prefix\" \"$current\" \"{}\";", fmt::join(flag.values, " "));
    return flag.takes_file ? action + " _paceline_files \"$prefix\" \"$current\";" : action;
  });
  return fmt::format(R"(# bash completions of paceline; use: source <(paceline completions bash)
# Adds the words of $3 that begin with $2, behind $1.
_paceline_words() {{
  mapfile -t COMPREPLY < <(compgen -P "$1" -W "$3" -- "$2")
}}
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
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words="" key="" prefix=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _paceline_words "" "$current" "{}"
    return
  fi
  if [ "$COMP_CWORD" -gt 2 ]; then
    case "$command ${{COMP_WORDS[2]}}" in {}) command="$command ${{COMP_WORDS[2]}}" ;; esac
  fi
  # A word with "=" in it comes in three pieces, unless COMP_WORDBREAKS was changed.
  if [ "$current" = "=" ]; then key="$before" current=""
  elif [ "$before" = "=" ]; then key="${{COMP_WORDS[COMP_CWORD-2]}}"
  elif [[ "$current" == *=* ]]; then key="${{current%%=*}}" prefix="${{current%%=*}}=" current="${{current#*=}}"
  elif [[ "$before" == -* ]]; then key="$before"
  fi
  if [[ "$key" == -* ]]; then
    case "$command $key" in
{}    esac
  elif [ -n "$key" ]; then
    case "$key" in
{}      {}) _paceline_files "$prefix" "$current"; return ;;
    esac
    _paceline_words "$prefix" "$current" "$words"
    return
  fi
  case "$command" in
{}  esac
  _paceline_words "" "$current" "$words"
  case "$command" in "{}") _paceline_files "" "$current" ;; esac
  if [ "${{#COMPREPLY[@]}}" -eq 1 ] && [[ "${{COMPREPLY[0]}}" == *= ]]; then compopt -o nospace; fi
}}
complete -F _paceline paceline
)",
                     fmt::join(names_of(words, false), " "), nested_names(words), flags, value_cases(words, "      {}) words=\"{}\" ;;\n"),
                     file_keys(words), cases, fmt::join(commands_with_files(words), "\"|\""));
}

std::string zsh_completions(const CompletionWords& words) {
  std::string commands, cases;
  for (const CompletionCommand& command : words.commands) {
    std::string help = command.help;
    std::erase(help, '\'');
    std::erase(help, ':');
    if (!command.is_nested()) commands += fmt::format(" '{}:{}'", command.name, help);
    const std::string keys = key_words(words, command);
    cases += fmt::format("    \"{}\") compadd --{}", command.name, plain_words(command));
    if (!keys.empty()) cases += fmt::format("; compadd -S '' --{}", keys);
    if (command.takes_files) cases += "; _files";
    cases += " ;;\n";
  }
  const std::string flags = flag_cases(words, "    {}) {} return ;;\n", [](const CompletionFlag& flag) {
    const std::string values = flag.values.empty() ? "" : fmt::format("compadd -- {};", fmt::join(flag.values, " "));
    return flag.takes_file ? values + " _files;" : values;
  });
  return fmt::format(R"(#compdef paceline
# zsh completions of paceline: `paceline completions zsh` as a file _paceline in a folder of $fpath, or sourced after compinit.
_paceline() {{
  local current="${{words[CURRENT]}}" name="${{words[2]}}" flag="${{words[CURRENT-1]}}"
  local -a commands
  if (( CURRENT == 2 )); then
    commands=({})
    _describe command commands
    return
  fi
  if (( CURRENT > 3 )); then
    case "$name ${{words[3]}}" in {}) name="$name ${{words[3]}}" ;; esac
  fi
  if [[ "$current" == *=* ]]; then
    compset -P '*='
    case "${{current%%=*}}" in
{}      {}) _files; return ;;
      -*) flag="${{current%%=*}}" ;;
      *) return ;;
    esac
  fi
  case "$name $flag" in
{}  esac
  case "$name" in
{}  esac
}}
if [ "${{funcstack[1]}}" = _paceline ]; then _paceline "$@"; else compdef _paceline paceline; fi
)",
                     commands, nested_names(words), value_cases(words, "      {}) compadd -- {}; return ;;\n"), file_keys(words), flags,
                     cases);
}

std::string fish_completions(const CompletionWords& words) {
  std::string out = fmt::format(R"(# fish completions of paceline; use: paceline completions fish | source
# Whether the line so far is one of these commands, and not a command of theirs.
function __paceline_is
    set -l words (commandline -opc)
    set -l command $words[2]
    if contains -- "$words[2] $words[3]" "{}"
        set command "$words[2] $words[3]"
    end
    contains -- "$command" $argv
end
complete -c paceline -f
)",
                                fmt::join(names_of(words, true), "\" \""));
  for (const CompletionCommand& command : words.commands) {
    if (!command.is_nested())
      out += fmt::format("complete -c paceline -n __fish_use_subcommand -a {} -d {}\n", command.name, quoted(command.help));
    const std::string rule = fish_rule({command.name});
    for (const CompletionFlag& flag : command.flags) out += rule + fish_flag(flag) + "\n";
    if (!command.words.empty()) out += fmt::format("{} -a '{}'\n", rule, fmt::join(command.words, " "));
    if (command.takes_files) out += rule + " -F\n";
  }
  // fish completes whole words: every key with every value.
  const auto takers = [&](bool model) {
    std::vector<std::string> names;
    for (const CompletionCommand& command : words.commands)
      if (command.takes_keys || (model && command.takes_model_keys)) names.push_back(command.name);
    return fish_rule(names);
  };
  for (const CompletionKey& key : words.keys) {
    std::string choices = key.key + "=";
    for (const std::string& value : key.values) choices += fmt::format(" {}={}", key.key, value);
    out += fmt::format("{} -a '{}'\n", takers(key.key.starts_with("model.")), choices);
  }
  return out;
}

}  // namespace paceline::cli
