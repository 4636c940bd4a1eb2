// Component program: a main() with the command line of `paceline train`, for your own module.
//
//   return paceline::program::train_program(argc, argv, defaults, [](const paceline::train::Recipe&) { return workload; });
//
// docs/api/program.md. Headers in folders below this one may move; include this one.
#pragma once

#include "paceline/program/train_program.h"
#include "paceline/train.h"
