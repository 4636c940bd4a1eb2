// A module and a dataset of one's own, and Paceline's Trainer.
#include <paceline/train.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

namespace {

struct LineImpl : torch::nn::Module {
  LineImpl() { fc = register_module("fc", torch::nn::Linear(2, 1)); }
  torch::Tensor forward(const torch::Tensor& x) { return fc(x); }
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Line);

struct Points : torch::data::datasets::Dataset<Points> {
  torch::Tensor x = torch::rand({256, 2});
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor point = x[static_cast<std::int64_t>(index)];
    return {point, point.sum(0, true)};
  }
  torch::optional<std::size_t> size() const override { return 256; }
};

int train() {
  torch::manual_seed(1);
  paceline::train::Recipe recipe;
  recipe.data.batch = 16;
  recipe.optim.rate = 0.2;
  recipe.train.epochs = 10;
  paceline::train::Workload workload;
  workload.name = "line";
  workload.model = paceline::nn::models_of([] { return Line(); });
  workload.loss = std::make_shared<paceline::nn::FunctionLoss>(
      [](const torch::Tensor& output, const torch::Tensor& target) { return torch::nn::functional::mse_loss(output, target); });
  workload.training = paceline::train::dataset_of(Points());
  workload.test = paceline::train::dataset_of(Points());

  const paceline::SteadyClock clock;
  const std::atomic<bool> stop = false;
  paceline::observe::Bus bus;
  paceline::train::Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .workload = workload});
  const auto folder = paceline::observe::RunFolder::create("runs", "line");
  const paceline::observe::RunEnded ended = trainer.run(folder.path());
  std::printf("test loss %s\n", ended.test_loss < 1e-3 ? "small" : "large");
  return ended.test_loss < 1e-3 ? 0 : 1;
}

}  // namespace

int main() { return paceline::run_program(train); }
