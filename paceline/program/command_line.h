// The parts that the command lines of training programs share: flags of CLI11, recipes and assignments, signals, one JSON document.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paceline/program/help_format.h"

namespace paceline {
class Config;
}

namespace paceline::program {

/// What to do once the flags are read; returns an ExitCode.
using Action = std::function<int()>;

/// Describes what is wrong with a command line: "unknown flag '--worker'; did you mean '--workers'?"
std::string parse_problem(const CLI::ParseError& error, const CLI::App& app);

/// Parses the words behind the program's name. For -n it accepts -np too, which CLI11 would read as -n p.
void parse_words(CLI::App& app, std::vector<std::string> words);

/// Set by SIGINT, SIGTERM, SIGHUP and SIGUSR1 after catch_signals(). At the second signal the program exits at once.
extern std::atomic<bool> stop_requested;
void catch_signals();

/// The "Examples:" under a command's help.
void add_examples(CLI::App& app, const std::vector<std::string>& lines);

/// What a flag that takes a count accepts.
CLI::Validator whole_number(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// Whether any argument is not a setting, and so names a recipe file.
bool names_recipe(const std::vector<std::string>& words);
/// The settings of the recipe files and assignments among the arguments; assignments take precedence.
void read_settings(Config& config, const std::vector<std::string>& words);

/// Adds --json.
void add_json_flag(CLI::App& app, bool& json);

/// The one JSON document of a --json run.
void print_json(const nlohmann::ordered_json& document);

}  // namespace paceline::program
