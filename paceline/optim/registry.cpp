// The optimizers on the CPU. To add one: its rule in rules/, a row here, a row in cuda_optimizer.cu, a reference in
// tests/optim/optimizer_test.cpp.
#include "paceline/optim/cpu_optimizer.h"
#include "paceline/optim/rules/adagrad.h"
#include "paceline/optim/rules/adam.h"
#include "paceline/optim/rules/lamb.h"
#include "paceline/optim/rules/lars.h"
#include "paceline/optim/rules/rmsprop.h"
#include "paceline/optim/rules/sgd.h"

namespace paceline::optim {
namespace {

template <class Family>
std::unique_ptr<Optimizer> make(const OptimConfig& config) {
  return Family::choose(config,
                        [&](auto rule) -> std::unique_ptr<Optimizer> { return std::make_unique<CpuOptimizer<decltype(rule)>>(config); });
}

constexpr Entry<OptimizerKind> kOptimizers[] = {
    {"sgd",
     "stochastic gradient descent with momentum, Nesterov or not",
     {.make = make<WithMomentum<Sgd>>, .nesterov = true, .heavy_ball = true}},
    {"adam", "Adam, weight decay added to the gradient", {.make = make<Adam<Decay::in_gradient>>, .usual_rate = 1e-3}},
    {"adamw", "Adam, weight decay decoupled from the gradient", {.make = make<Adam<Decay::decoupled>>, .usual_rate = 1e-3}},
    {"adagrad", "AdaGrad: divides each parameter's rate by the root of the sum of its squared gradients", {make<Adagrad>}},
    {"rmsprop",
     "RMSprop: AdaGrad with a running mean of the squares; with or without momentum",
     {.make = make<WithMomentum<Rmsprop>>, .usual_rate = 1e-3}},
    {"rmsprop_warmup", "starts as RMSprop and becomes SGD with momentum, for the first epochs of large batches", {make<RmspropWarmup>}},
    {"lars",
     "SGD with a rate for each tensor, for large batches of convolutional networks",
     {.make = make<WithMomentum<Lars>>, .nesterov = true}},
    {"lamb", "Adam with a rate for each tensor, for large batches of transformers", {.make = make<Lamb>, .usual_rate = 2e-3}},
};

}  // namespace

std::span<const Entry<OptimizerKind>> optimizers() { return kOptimizers; }

const OptimizerKind& optimizer_kind(const std::string& name) { return find(optimizers(), "optimizer", name).make; }

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config) {
  const OptimizerKind& kind = optimizer_kind(config.name);
  validate(config);
  return kind.make(config);
}

}  // namespace paceline::optim
