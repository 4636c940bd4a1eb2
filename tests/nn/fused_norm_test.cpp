// The fused kernels exist only on a GPU: the same network on the CPU, whose ops are checked elsewhere, is their reference.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/loss.h"

namespace paceline::nn {
namespace {

struct Outcome {
  at::Tensor logits, gradients, statistics, evaluated;
};

Outcome run_once(const c10::Device& device, const at::Tensor& input, const at::Tensor& targets) {
  graph::ModelConfig config;
  config.network = "resnet18";
  config.input = {3, 32, 32};
  config.classes = 10;
  GraphModule module(graph::make_graph(config), {.device = device, .seed = 3});
  Pass pass;
  Trace trace;
  const at::Tensor logits = module.run(input.to(device), pass, &trace);
  module.back(softmax_loss(logits, targets.to(device), 0, 1.0 / 8, true).gradient, pass, trace);
  std::vector<at::Tensor> gradients, statistics;
  for (std::size_t i = 0; i < module.arena().entries().size(); ++i) gradients.push_back(module.arena().gradient(i).cpu().flatten());
  for (std::size_t i = 0; i < module.statistics().entries().size(); ++i)
    statistics.push_back(module.statistics().parameter(i).cpu().flatten());
  pass.training = false;  // with the statistics of the step before
  return {logits.cpu(), at::cat(gradients), at::cat(statistics), module.run(input.to(device), pass, nullptr).cpu()};
}

double relative(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

TEST(FusedNorm, AgreesWithTheCpuOnAResidualNetwork) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  tensor::configure_libtorch(c10::Device(c10::kCUDA, 0), tensor::Precision::fp32, 0, true);
  const at::Tensor input = at::randn({8, 3, 32, 32}), targets = at::randint(10, {8}, at::kLong);
  const Outcome cpu = run_once(c10::Device(c10::kCPU), input, targets), gpu = run_once(c10::Device(c10::kCUDA, 0), input, targets);
  EXPECT_LT(relative(gpu.logits, cpu.logits), 1e-4);
  EXPECT_LT(relative(gpu.statistics, cpu.statistics), 1e-4);
  EXPECT_LT(relative(gpu.evaluated, cpu.evaluated), 1e-3);
  EXPECT_LT(relative(gpu.gradients, cpu.gradients), 5e-3);  // seventeen norms over a batch of 8 enlarge the last bits
}

}  // namespace
}  // namespace paceline::nn
