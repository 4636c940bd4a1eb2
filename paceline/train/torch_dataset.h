// Datasets of torch::data for the Trainer: they provide samples; order, shares of workers and batches are Paceline's.
#pragma once

#include <torch/data/example.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "paceline/data/dataset.h"

namespace paceline::train {

struct DatasetOptions {
  std::string name = "dataset";               // in summaries
  std::vector<std::string> class_names = {};  // by label
};

/// From a function that returns sample `index` of `size`; several threads may call it, but only one at a time. The first sample determines
/// the shapes and kinds of all: floating-point inputs are float32, integers are tokens; floating-point targets are float32, integers
/// labels. ConfigError if there is no sample.
std::shared_ptr<const data::Dataset> dataset_of(std::function<torch::data::Example<>(std::size_t index)> get, std::size_t size,
                                                const DatasetOptions& options = {});

/// From a dataset of torch::data with a size: one with get(), or a mapped one that returns batches, stacked or not.
template <class Torch>
requires requires(Torch& dataset) { dataset.size().value(); }
std::shared_ptr<const data::Dataset> dataset_of(Torch dataset, const DatasetOptions& options = {}) {
  const std::size_t size = dataset.size().value();
  const auto shared = std::make_shared<Torch>(std::move(dataset));
  const auto get = [shared](std::size_t index) -> torch::data::Example<> {
    if constexpr (requires { torch::data::Example<>(shared->get(index)); }) {
      return shared->get(index);
    } else {
      auto batch = shared->get_batch({index});
      if constexpr (requires { batch.data; }) return {batch.data[0], batch.target[0]};
      else return batch.front();
    }
  };
  return dataset_of(get, size, options);
}

}  // namespace paceline::train
