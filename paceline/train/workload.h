// What a run trains: by default the recipe's network, on the recipe's dataset, with softmax and cross entropy. A program of one's own puts
// its module, loss and datasets here; how they are trained is the recipe's.
#pragma once

#include <memory>
#include <string>

#include "paceline/data/dataset.h"
#include "paceline/nn/loss.h"
#include "paceline/nn/module_model.h"

namespace paceline::train {

struct Workload {
  std::string name;                           // of the model, in run folders, checkpoints and summaries
  nn::MakeModel model = {};                   // called once for each worker; nn::models_of() makes it. Empty: the recipe's network
  std::shared_ptr<const nn::Loss> loss = {};  // null: softmax with cross entropy
  std::shared_ptr<const data::Dataset> training = {}, test = {};  // dataset_of() makes them. Null: the recipe's
};

}  // namespace paceline::train
