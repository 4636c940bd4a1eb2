// paceline completions bash | zsh | fish
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "completion_words.h"
#include "paceline/base/error.h"
#include "paceline/base/suggest.h"

namespace paceline::cli {
namespace {

struct Shell {
  std::string_view key;
  std::string (*script)(const CompletionWords& words);
};

constexpr Shell kShells[] = {{"bash", bash_completions}, {"zsh", zsh_completions}, {"fish", fish_completions}};

const Shell& shell_of(const std::string& name) {
  std::vector<std::string_view> known;
  for (const Shell& shell : kShells) {
    if (shell.key == name) return shell;
    known.push_back(shell.key);
  }
  throw ConfigError(unknown_message("shell", name, known));
}

std::vector<std::string> shell_names() {
  std::vector<std::string> names;
  for (const Shell& shell : kShells) names.emplace_back(shell.key);
  return names;
}

}  // namespace

Action add_completions(CLI::App& app) {
  struct Flags {
    std::string shell = "bash";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("SHELL", flags->shell, "bash, zsh or fish")->check(known_values(shell_names()))->capture_default_str();
  add_json_flag(app, flags->json);
  add_examples(app,
               {"source <(paceline completions bash)", "paceline completions zsh > ~/.zfunc/_paceline    with fpath+=~/.zfunc in ~/.zshrc",
                "paceline completions fish > ~/.config/fish/completions/paceline.fish"});
  const CLI::App* root = app.get_parent();
  return [flags, root] {
    const std::string script = shell_of(flags->shell).script(completion_words(*root));
    if (flags->json) print_json({{"shell", flags->shell}, {"script", script}});
    else std::cout << script;
    return kDone;
  };
}

}  // namespace paceline::cli
