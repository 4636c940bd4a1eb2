// A regression of a user's, to be trained by the Trainer: module, loss and dataset, and what a run of it reported.
#pragma once

#include <torch/data.h>
#include <torch/nn.h>

#include <limits>

#include "paceline/train/torch_dataset.h"
#include "paceline/train/workers.h"
#include "paceline/train/workload.h"
#include "tests/train/support.h"

namespace paceline::train {

namespace F = torch::nn::functional;

/// A regression with a batch norm, and buffers of its own: of no, one and two dimensions, and a mask, which is not finite.
struct RegressorImpl : torch::nn::Module {
  RegressorImpl() {
    first = register_module("first", torch::nn::Linear(4, 12));
    norm = register_module("norm", torch::nn::BatchNorm1d(12));
    last = register_module("last", torch::nn::Linear(12, 2));
    shift = register_buffer("shift", torch::full({1}, 0.25));
    scale = register_buffer("scale", torch::tensor(1.0f));
    positions = register_buffer("positions", torch::linspace(-1, 1, 120).view({3, 40}));
    mask = register_buffer("mask", torch::full({3, 3}, -std::numeric_limits<float>::infinity()).triu(1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(norm(first(x)))) + shift * scale; }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor shift, scale, positions, mask;
};
TORCH_MODULE(Regressor);

class Points : public torch::data::datasets::Dataset<Points> {
 public:
  explicit Points(std::size_t count) : count_(count) {}
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor x = torch::sin(torch::arange(4) * 1.7 + static_cast<double>(index) * 0.61);
    return {x, torch::stack({x.sum() * 0.5, x[0] * x[1]})};
  }
  torch::optional<std::size_t> size() const override { return count_; }

 private:
  std::size_t count_;
};

inline torch::Tensor mean_square(const torch::Tensor& output, const torch::Tensor& targets) { return F::mse_loss(output, targets); }

inline Workload regression(bool with_norm = true) {
  Workload workload;
  workload.name = "regressor";
  if (with_norm) workload.model = nn::models_of([] { return Regressor(); });
  else
    workload.model =
        nn::models_of([] { return torch::nn::Sequential(torch::nn::Linear(4, 12), torch::nn::Tanh(), torch::nn::Linear(12, 2)); });
  const auto distance = [](const torch::Tensor& output, const torch::Tensor& targets) { return (output - targets).abs().mean(); };
  workload.loss = std::make_shared<nn::FunctionLoss>(mean_square, std::vector<nn::FunctionLoss::Metric>{{"distance", distance}});
  workload.training = dataset_of(Points(96), {.name = "points"}), workload.test = dataset_of(Points(32), {.name = "points"});
  return workload;
}

inline Recipe small_recipe() {
  Recipe recipe;
  recipe.data.batch = 16;
  recipe.optim.rate = 0.05;
  recipe.train.epochs = 2;
  recipe.train.device = "cpu";
  recipe.schedule.name = "constant";
  return recipe;
}

struct Told final : observe::Listener {
  void on(const observe::Event& event) override {
    if (const auto* started = std::get_if<observe::RunStarted>(&event)) start = *started;
    if (const auto* step = std::get_if<observe::StepDone>(&event)) losses.push_back(step->loss), accuracies.push_back(step->accuracy);
  }
  observe::RunStarted start;
  std::vector<double> losses, accuracies;
};

struct Trained {
  observe::RunEnded ended;
  observe::RunStarted started;
  std::vector<double> losses, accuracies;
};

inline Trained train(const Recipe& recipe, const Workload& workload, int workers, const std::filesystem::path& folder,
                     bool resumes = false) {
  Recipe shared = recipe;
  shared.parallel.workers = workers;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  observe::Bus bus;
  auto listener = std::make_unique<Told>();
  const Told& told = *listener;
  bus.add(std::move(listener));
  std::optional<FoundCheckpoint> from;
  if (resumes) from = newest_good_checkpoint(folder);
  Workers all(shared, comm::World{}, {.bus = bus, .clock = clock, .stop = stop, .from = from ? &*from : nullptr, .workload = workload});
  Trained result;
  result.ended = all.run(folder);
  result.started = told.start, result.losses = told.losses, result.accuracies = told.accuracies;
  return result;
}

}  // namespace paceline::train
