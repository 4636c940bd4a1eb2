#include "paceline/nn/module_parts.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>

namespace paceline::nn {

bool is_statistic(const at::Tensor& buffer, c10::ScalarType parameters) { return buffer.defined() && buffer.scalar_type() == parameters; }

std::vector<std::pair<std::string, at::Tensor>> statistics_of(const torch::nn::Module& module, c10::ScalarType parameters,
                                                              const Takes& takes) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  for (const auto& item : module.named_buffers())
    if (is_statistic(item.value(), parameters) && (!takes || takes(item.key()))) found.emplace_back(item.key(), item.value());
  return found;
}

tensor::Arena adopt_statistics(torch::nn::Module& module, const tensor::Allocate& allocate, const at::TensorOptions& options,
                               const Takes& takes) {
  std::vector<tensor::Spec> specs;
  const c10::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  for (const auto& [name, buffer] : statistics_of(module, type, takes)) specs.push_back({name, buffer.sizes().vec(), false});
  tensor::Arena::Options arena_options;
  arena_options.tensor = options, arena_options.gradients = false, arena_options.allocate = allocate;
  tensor::Arena arena(specs, arena_options);
  const at::NoGradGuard no_grad;
  std::size_t entry = 0;
  for (const auto& [name, buffer] : statistics_of(module, type, takes)) {
    const at::Tensor home = arena.parameter(entry++);
    home.copy_(buffer);
    buffer.set_data(home);
  }
  return arena;
}

double momentum_of(torch::nn::Module& module, const std::string& buffer) {
  const std::size_t dot = buffer.rfind('.');
  const std::string owner = dot == std::string::npos ? "" : buffer.substr(0, dot);
  const auto of = [](const auto* norm) {
    const auto momentum = norm->options.momentum();
    return momentum.has_value() ? *momentum : 0.0;
  };
  for (const auto& item : module.named_modules()) {
    if (item.key() != owner) continue;
    if (const auto* norm = item.value()->as<torch::nn::BatchNorm1dImpl>()) return of(norm);
    if (const auto* norm = item.value()->as<torch::nn::BatchNorm2dImpl>()) return of(norm);
    if (const auto* norm = item.value()->as<torch::nn::BatchNorm3dImpl>()) return of(norm);
  }
  return 0;
}

bool belongs_to(const std::string& tensor, const std::string& block) {
  return block.empty() || tensor == block || tensor.starts_with(block + ".");
}

}  // namespace paceline::nn
