// The network of a run's checkpoint, on one worker, for use after training: evaluation, predictions, samples.
#pragma once

#include <functional>

#include "paceline/base/clock.h"
#include "paceline/nn/graph_module.h"
#include "paceline/train/from_recipe.h"

namespace paceline::train {

/// How well a network does on a dataset: its mean loss, and how many targets it gets right.
struct Evaluation {
  double loss = 0, accuracy = 0;
  std::int64_t samples = 0, targets = 0;
};

/// Probabilities of one input, the most likely class first.
struct Ranking {
  struct Class {
    std::int64_t label = 0;
    double probability = 0;
  };
  std::vector<Class> classes;
};

class TrainedRun {
 public:
  /// The newest good checkpoint of a run, or the one that is named. `settings` changes the run's recipe: other data, another device.
  /// DataError if there is no checkpoint, or the recipe's data is missing; ConfigError if the network does not fit the data, or belongs to
  /// another program.
  TrainedRun(const std::filesystem::path& path, const std::function<void(Config&)>& settings);

  TrainedRun(const TrainedRun&) = delete;
  TrainedRun& operator=(const TrainedRun&) = delete;

  const std::filesystem::path& checkpoint() const { return file_; }
  const Position& position() const { return position_; }
  const Recipe& recipe() const { return recipe_; }
  const data::Dataset& dataset(data::Split split) const { return split == data::Split::train ? *datasets_.training : *datasets_.test; }
  nn::GraphModule& network() { return dynamic_cast<nn::GraphModule&>(*model_); }
  /// The name of a label; its number if it has none.
  std::string class_name(std::int64_t label) const;

  /// Without augmentation. `told` is called with the number of samples done; if it returns false, the result covers those.
  Evaluation evaluate(data::Split split, const std::function<bool(std::int64_t done)>& told);

  /// For image files, in order, the `top` classes of each. DataError if one cannot be read, before its batch is computed.
  void predict(const std::vector<std::string>& files, std::int64_t top,
               const std::function<void(const std::string& file, const Ranking& ranking)>& told);

 private:
  void check_data(const Checkpoint& checkpoint) const;

  std::filesystem::path file_;
  Position position_;
  Recipe recipe_;
  std::vector<std::string> class_names_;
  Datasets datasets_;
  SteadyClock clock_;
  std::unique_ptr<comm::Communicator> alone_;
  std::unique_ptr<comm::Mesh> mesh_;
  std::shared_ptr<nn::Model> model_;
};

}  // namespace paceline::train
