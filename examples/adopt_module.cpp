// A module of your own in a plain loop of your own: the arena adopts its parameters, and one fused pass over memory updates them all.
//
// Nothing of the module changes to you: the same tensors under the same names, trained by autograd as ever. Their storage is now one flat
// buffer, which is what optimizers, checkpoints and (with several workers) collectives work on.
#include <torch/torch.h>

#include <iostream>

#include "paceline/data_parallel.h"

namespace {

struct Spiral : torch::nn::Module {
  torch::nn::Linear in{nullptr}, middle{nullptr}, out{nullptr};

  Spiral() {
    in = register_module("in", torch::nn::Linear(2, 64));
    middle = register_module("middle", torch::nn::Linear(64, 64));
    out = register_module("out", torch::nn::Linear(64, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(middle(torch::relu(in(x))))); }
};

}  // namespace

int main() {
  torch::manual_seed(1);
  Spiral model;
  paceline::tensor::Arena arena = paceline::tensor::adopt(model);
  const paceline::optim::OptimConfig optim{.name = "adamw", .rate = 0.01, .weight_decay = 1e-4};
  paceline::step::Updater updater(arena, optim);

  // Two arms of a spiral: which arm is a point on?
  const torch::Tensor arm = torch::arange(512) % 2, angle = torch::rand({512}) * 9 + 0.5, turn = angle + arm * 3.14159;
  const torch::Tensor points = torch::stack({angle * turn.cos(), angle * turn.sin()}, 1) / 9;

  for (int step = 1; step <= 500; ++step) {
    arena.gradients().zero_();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(model.forward(points), arm);
    loss.backward();
    updater.begin_step({.rate = static_cast<float>(optim.rate), .step = step});
    updater.update_all();
    if (step % 100 == 0) std::cout << "step " << step << ": loss " << loss.item<float>() << '\n';
  }
  const double right = (model.forward(points).argmax(1) == arm).to(torch::kDouble).mean().item<double>();
  std::cout << "right: " << 100 * right << "% of the points\n";
  return right > 0.95 ? 0 : 1;
}
