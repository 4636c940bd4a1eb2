#include "paceline/program/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "paceline/base/config.h"
#include "paceline/base/suggest.h"

namespace paceline::program {

namespace {

extern "C" void request_stop(int signal) {
  if (stop_requested.exchange(true)) {  // the second signal: exit at once
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

std::atomic<bool> stop_requested = false;

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    // A process started by nohup continues when its terminal is gone.
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

std::string parse_problem(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App* used = &app;
  for (const CLI::App* sub : app.get_subcommands()) used = sub;
  for (const CLI::App* sub : used->get_subcommands()) used = sub;
  const std::vector<std::string> left = used->remaining(true);
  const std::string hint = fmt::format("; see `{} --help`", app.get_name());
  if (left.empty() || used->get_prefix_command()) return error.what() + hint;  // the remaining arguments of `run` belong to the program
  std::vector<std::string> names;
  for (const CLI::Option* option : used->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* sub : used->get_subcommands([](const CLI::App*) { return true; })) names.push_back(sub->get_name());
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string problem = unknown_message(left.front().starts_with('-') ? "flag" : "command", left.front(), known);
  return problem.ends_with('?') ? problem : problem + hint;
}

void parse_words(CLI::App& app, std::vector<std::string> words) {
  std::ranges::replace(words, "-np", "-n");
  std::ranges::reverse(words);  // CLI11 expects them in reverse
  app.parse(std::move(words));
}

void add_examples(CLI::App& app, const std::vector<std::string>& lines) {
  std::string text = "Examples:";
  for (const std::string& line : lines) text += "\n  " + line;
  app.footer(text);
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool good = error == std::errc() && end == text.data() + text.size() && number >= least && number <= most;
    const std::string range = most == std::numeric_limits<std::int64_t>::max() ? "" : fmt::format(" and at most {}", most);
    return good ? std::string() : fmt::format("must be a whole number of at least {}{}, not '{}'", least, range, text);
  };
  return CLI::Validator(check, "");
}

bool names_recipe(const std::vector<std::string>& words) { return !std::ranges::all_of(words, is_assignment); }

void read_settings(Config& config, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (!is_assignment(word)) config.load(word);
  for (const std::string& word : words)
    if (is_assignment(word)) config.set(word);
}

void add_json_flag(CLI::App& app, bool& json) { app.add_flag("--json", json, "print one JSON document on standard output"); }

// A file name may contain any bytes; those that are not UTF-8 are replaced, as in summary.json.
void print_json(const nlohmann::ordered_json& document) {
  std::cout << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
}

}  // namespace paceline::program
