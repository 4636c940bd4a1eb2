// What a subcommand needs. One file per subcommand, which adds its flags to CLI11's app and returns what to do once they are read, a row in
// commands.h, and one in tools_main.cpp.
#pragma once

#include <string>
#include <vector>

#include "commands.h"
#include "paceline/base/run_program.h"
#include "paceline/program/command_line.h"

namespace paceline::cli {

using namespace program;

/// Rewrites what CLI11 cannot parse: -np, which every command accepts for -n, and for `run` torchrun's spellings and the -- before the
/// program.
void spell_out(const CLI::App& app, std::vector<std::string>& words);

}  // namespace paceline::cli
