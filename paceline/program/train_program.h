// A program that trains, with the command line of `paceline train`: for the built-in networks, and for a module of one's own.
//
//   int main(int argc, char** argv) {
//     paceline::train::Recipe defaults;  // what a run is where nobody says anything else
//     return paceline::program::train_program(argc, argv, defaults, [](const paceline::train::Recipe& recipe) {
//       return paceline::train::Workload{.name = …, .model = …, .loss = …, .training = …, .test = …};
//     });
//   }
//
// It trains alone; as threads (--workers); as one of the processes that `paceline run`, mpirun or torchrun start; and, where the strategy
// has a parameter server, as one of its servers and workers.
#pragma once

#include <functional>

#include "paceline/train/recipe.h"
#include "paceline/train/workload.h"

namespace paceline::program {

/// What this program trains. Called in every process, with the recipe as the command line made it.
using MakeWorkload = std::function<train::Workload(const train::Recipe&)>;

/// Returns an ExitCode. What goes wrong is told in one line.
int train_program(int argc, char** argv, const train::Recipe& defaults, const MakeWorkload& workload);

}  // namespace paceline::program
