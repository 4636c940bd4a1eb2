// paceline help [COMMAND…]: what --help prints, as text or as a man page; --write-man writes all man pages as files, for the installation.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/suggest.h"
#include "paceline/version.h"

namespace paceline::cli {
namespace {

bool every_one(const CLI::App*) { return true; }

/// A command of a program that is not built has no flags, not even --help.
void refuse_not_built(const CLI::App& command) {
  if (command.get_options().empty()) throw ConfigError(not_built(command.get_name()));
}

/// The command that the words name, starting at `app`.
const CLI::App& find_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* found = &app;
  for (const std::string& word : words) {
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* sub : found->get_subcommands(every_one)) {
      names.push_back(sub->get_name());
      if (sub->get_name() == word) next = sub;
    }
    if (next == nullptr) throw ConfigError(unknown_message("command", word, std::vector<std::string_view>(names.begin(), names.end())));
    refuse_not_built(*next);
    found = next;
  }
  return *found;
}

/// "paceline checkpoint show"
std::string words_to(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : words_to(*app.get_parent()) + " " + app.get_name();
}

std::string with_dashes(std::string words) {
  std::replace(words.begin(), words.end(), ' ', '-');
  return words;
}

/// Escapes text for roff: no line is taken as a request, and a dash stays a dash.
std::string roff(const std::string& text) {
  std::string out;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
    begins_line = c == '\n';
  }
  return out;
}

void add_entries(std::string& page, const CLI::App& app, bool positional, const char* title) {
  bool begun = false;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() != positional || option->get_group().empty()) continue;  // a flag without a group is not shown
    if (!begun) page += fmt::format(".SH {}\n", title);
    begun = true;
    const std::string word = positional ? "" : value_word(*option);
    page += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(names_of(*option)), word.empty() ? "" : " \\fI" + roff(word) + "\\fR",
                        roff(described(*option)));
  }
}

/// A man page of section 1: the tables behind --help in roff.
std::string man_page(const CLI::App& app) {
  const std::string words = words_to(app), name = with_dashes(words);
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string page = fmt::format(".TH {} 1 \"\" \"paceline {}\" \"Paceline\"\n", roff(upper), PACELINE_VERSION);
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(app.get_description()));
  page += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR", roff(words));
  if (!app.get_subcommands(every_one).empty()) page += " \\fICOMMAND\\fR";
  else page += " [\\fIOPTIONS\\fR]";
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional()) {
      const std::string argument = fmt::format("\\fI{}\\fR", roff(option->get_name(true)));
      page += option->get_required() ? " " + argument : " [" + argument + "]";
    }
  page += "\n";
  if (const auto subs = app.get_subcommands(every_one); !subs.empty()) {
    page += ".SH COMMANDS\n";
    for (const CLI::App* sub : subs)
      page += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(with_dashes(words_to(*sub))), roff(sub->get_description()));
  }
  add_entries(page, app, true, "ARGUMENTS");
  add_entries(page, app, false, "OPTIONS");
  std::istringstream footer(app.get_footer());
  for (std::string line; std::getline(footer, line);) {
    if (line == "Examples:") page += ".SH EXAMPLES\n.nf\n";
    else page += roff(line) + "\n";
  }
  if (page.find("\n.nf\n") != std::string::npos) page += ".fi\n";
  page += ".SH EXIT STATUS\n0: success. 1: failure. 2: wrong usage, settings or input files. 3: stopped by a signal, with a checkpoint.\n";
  if (app.get_parent() != nullptr) page += fmt::format(".SH SEE ALSO\n\\fB{}\\fR(1)\n", roff(with_dashes(words_to(*app.get_parent()))));
  return page;
}

int write_pages(const CLI::App& app, const std::filesystem::path& folder) {
  write_atomically(folder / (with_dashes(words_to(app)) + ".1"), man_page(app));
  int pages = 1;
  for (const CLI::App* sub : app.get_subcommands(every_one)) pages += write_pages(*sub, folder);
  return pages;
}

}  // namespace

Action add_help(CLI::App& app) {
  struct Flags {
    std::vector<std::string> words;
    std::string folder;
    bool man = false, json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("COMMAND", flags->words, "a command and its subcommand, for example: checkpoint show");
  app.add_flag("--man", flags->man, "print it as a man page");
  app.add_option("--write-man", flags->folder, "write the man pages of all commands to this folder")->type_name(kFolder);
  add_json_flag(app, flags->json);
  add_examples(
      app, {"paceline help", "paceline help train", "paceline help --man checkpoint show | man -l -", "paceline help --write-man man1"});
  const CLI::App* root = app.get_parent();
  return [flags, root] {
    if (!flags->folder.empty()) {
      for (const CLI::App* command : root->get_subcommands(every_one)) refuse_not_built(*command);
      ensure_writable_folder(flags->folder);
      const int pages = write_pages(*root, flags->folder);
      if (flags->json) print_json({{"folder", flags->folder}, {"pages", pages}});
      return kDone;
    }
    const CLI::App& command = find_command(*root, flags->words);
    // Not command.help(), which would show the command that was parsed instead of this one.
    const std::string text =
        flags->man ? man_page(command) : command.get_formatter()->make_help(&command, words_to(command), CLI::AppFormatMode::Normal);
    if (flags->json) print_json({{"command", words_to(command)}, {"text", text}});
    else std::cout << text;
    return kDone;
  };
}

}  // namespace paceline::cli
