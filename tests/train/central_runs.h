// Small runs with a parameter server, and what they leave.
#pragma once

#include <ATen/ATen.h>

#include "paceline/train/weights.h"
#include "runs.h"

namespace paceline::train {

inline Recipe recipe_of(const std::string& strategy, const std::string& executor, std::int64_t workers = 4) {
  Recipe recipe = tiny_recipe();
  recipe.data.batch = 24, recipe.data.train_samples = 240;
  recipe.train.epochs = 2;
  recipe.strategy.name = strategy;
  recipe.ps.executor = executor;
  recipe.parallel.workers = workers;
  recipe.ps.hidden = 8;
  if (strategy == "downpour") recipe.ps.period = 2;
  return recipe;
}

struct Result {
  observe::RunEnded ended;
  Checkpoint checkpoint;

  at::Tensor weights() const {
    std::vector<at::Tensor> parts;
    for (const NamedTensor& item : checkpoint.tensors)
      if (item.name.starts_with(kModelPrefix)) parts.push_back(item.tensor.flatten().to(at::kDouble));
    return at::cat(parts);
  }
};

inline Result train_in(const std::filesystem::path& folder, const Recipe& recipe, bool resume = false, std::int64_t stop_after = 0) {
  Result result;
  result.ended = run_in(folder, recipe, resume, stop_after);
  result.checkpoint = newest_good_checkpoint(folder).second;
  return result;
}

inline Result train_once(const Recipe& recipe) {
  const Folder folder;
  return train_in(folder.path(), recipe);
}

inline double distance(const Result& a, const Result& b) {
  return (a.weights() - b.weights()).norm().item<double>() / b.weights().norm().item<double>();
}

}  // namespace paceline::train
