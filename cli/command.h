// A subcommand: adds its flags to CLI11's app and returns what to do once they are read. One file per subcommand, one row in main.cpp.
#pragma once

#include <string>
#include <vector>

#include "paceline/base/run_program.h"
#include "paceline/program/command_line.h"

namespace paceline::cli {

using namespace program;

Action add_train(CLI::App& app);
Action add_run(CLI::App& app);
Action add_scale(CLI::App& app);
Action add_compare(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_memory(CLI::App& app);
Action add_algorithm(CLI::App& app);
Action add_study(CLI::App& app);
Action add_probe(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_profile(CLI::App& app);
Action add_verify(CLI::App& app);
Action add_simulate(CLI::App& app);
Action add_tokenize(CLI::App& app);
Action add_evaluate(CLI::App& app);
Action add_predict(CLI::App& app);
Action add_sample(CLI::App& app);
Action add_list(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_checkpoint(CLI::App& app);
Action add_completions(CLI::App& app);
Action add_help(CLI::App& app);

/// Rewrites what CLI11 cannot parse: -np, which every command accepts for -n, and for `run` torchrun's spellings and the -- before the
/// program.
void spell_out(const CLI::App& app, std::vector<std::string>& words);

}  // namespace paceline::cli
