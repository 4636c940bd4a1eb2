// A training program with the command line of `paceline train`: for the built-in networks, and for a user's own module.
//
//   int main(int argc, char** argv) {
//     paceline::train::Recipe defaults;  // the settings unless a recipe or the command line changes them
//     return paceline::program::train_program(argc, argv, defaults, [](const paceline::train::Recipe& recipe) {
//       return paceline::train::Workload{.name = …, .model = …, .loss = …, .training = …, .test = …};
//     });
//   }
//
// It trains alone; as threads (--workers); as one of the processes that `paceline run`, mpirun or torchrun start; and, if the strategy has
// a parameter server, as one of its servers or workers.
#pragma once

#include <functional>

#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::program {

/// What this program trains. Called in every process, with the recipe after the command line.
using MakeWorkload = std::function<train::Workload(const train::Recipe&)>;

/// Returns an ExitCode. An error is reported in one line.
int train_program(int argc, char** argv, const train::Recipe& defaults, const MakeWorkload& workload);

}  // namespace paceline::program
