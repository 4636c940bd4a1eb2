#include "command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "paceline/base/config.h"

namespace paceline::cli {

namespace {

extern "C" void request_stop(int signal) {
  if (stop_requested.exchange(true)) {  // asked twice: leave at once
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

std::atomic<bool> stop_requested = false;

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
}

void add_examples(CLI::App& app, std::initializer_list<const char*> lines) {
  std::string text = "Examples:";
  for (const char* line : lines) text += std::string("\n  ") + line;
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

// The name of a file may be any bytes; what is not UTF-8 in it is replaced, as in summary.json.
void print_json(const nlohmann::ordered_json& document) {
  std::cout << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << std::endl;
}

}  // namespace paceline::cli
