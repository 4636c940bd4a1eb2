// What a run trains: by default the recipe's network, on the recipe's dataset, with softmax and cross entropy. A user's program puts its
// module, loss and datasets here; the recipe says how they are trained.
#pragma once

#include <memory>
#include <string>

#include "paceline/data/dataset.h"
#include "paceline/nn/loss.h"
#include "paceline/nn/module_model.h"

namespace paceline::train {

struct Workload {
  std::string name;                           // of the model, in run folders, checkpoints and summaries
  nn::MakeModel model = {};                   // called once for each worker; made by nn::models_of(). Empty: the recipe's network
  std::shared_ptr<const nn::Loss> loss = {};  // null: softmax with cross entropy
  std::shared_ptr<const data::Dataset> training = {}, test = {};  // made by dataset_of(). Null: the recipe's
};

}  // namespace paceline::train
