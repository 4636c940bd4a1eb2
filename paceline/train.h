// Component train: the Trainer, for a recipe's network, or for your own module, loss and datasets.
//
//   paceline::train::Workload workload{.name = "net", .model = paceline::nn::models_of([] { return Net(); }), …};
//   paceline::train::Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .workload = workload});
//   trainer.run(folder.path());
//
// docs/api/train.md. Headers in folders below this one may move; include this one.
#pragma once

#include "paceline/nn/loss.h"
#include "paceline/nn/module_model.h"
#include "paceline/observe/event.h"
#include "paceline/observe/run_folder.h"
#include "paceline/parameter_server.h"
#include "paceline/train/recipe.h"
#include "paceline/train/torch_dataset.h"
#include "paceline/train/trainer.h"
#include "paceline/train/workload.h"
