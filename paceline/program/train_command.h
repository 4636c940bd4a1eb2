// The command of a program that trains, for a program that has others too.
#pragma once

#include <string>

#include "paceline/program/train_plan.h"
#include "paceline/program/train_program.h"

namespace paceline::program {

/// Adds the flags of such a program; `program` is how it is started. Without defaults and workload: `paceline train`.
Action add_train(CLI::App& app, const std::string& program, const Defaults& defaults = {}, const MakeWorkload& workload = {});

}  // namespace paceline::program
