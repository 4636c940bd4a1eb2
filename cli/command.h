// A subcommand: adds its flags to CLI11's app and returns what to do once they are read. One file a subcommand, one row in main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paceline/base/program.h"

namespace paceline {
class Config;
}

namespace paceline::cli {

/// Runs the subcommand; returns an ExitCode.
using Action = std::function<int()>;

Action add_train(CLI::App& app);
Action add_run(CLI::App& app);
Action add_scale(CLI::App& app);
Action add_compare(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_algorithm(CLI::App& app);
Action add_list(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_checkpoint(CLI::App& app);
Action add_completions(CLI::App& app);

/// Rewrites torchrun's and mpirun's spellings among the flags of `run` (--nproc_per_node, -np, the -- before the program) to what CLI11
/// knows.
void spell_out_run(const CLI::App& app, std::vector<std::string>& words);

/// What was wrong with a command line: "unknown flag '--worker'; did you mean '--workers'?"
std::string parse_problem(const CLI::ParseError& error, const CLI::App& app);

/// Throws ConfigError where so many processes, of which `servers` are parameter servers, could not run `paceline train` with these words:
/// for a launcher, before it starts any. Data and devices are looked at where the processes run.
void check_train(std::vector<std::string> words, int processes, int servers);

/// Set by SIGINT, SIGTERM, SIGHUP and SIGUSR1 once catch_signals() was called; asked twice, the program ends at once.
extern std::atomic<bool> stop_requested;
void catch_signals();

/// "Examples:" under a subcommand's help.
void add_examples(CLI::App& app, std::initializer_list<const char*> lines);

/// What a flag that takes a count accepts.
CLI::Validator whole_number(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// Whether any of the words of a command line is no assignment: the name of a recipe file.
bool names_recipe(const std::vector<std::string>& words);
/// What the recipe files and the assignments among the words say; assignments win.
void read_settings(Config& config, const std::vector<std::string>& words);

/// Adds --json.
void add_json_flag(CLI::App& app, bool& json);

/// The one JSON document of a --json run.
void print_json(const nlohmann::ordered_json& document);

}  // namespace paceline::cli
