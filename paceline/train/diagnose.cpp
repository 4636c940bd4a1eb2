#include "paceline/train/diagnose.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

namespace paceline::train {
namespace {

bool finite(const at::Tensor& values) { return at::isfinite(values).all().item<bool>(); }

}  // namespace

bool all_finite(nn::GraphModule& module) {
  const at::Tensor& statistics = module.statistics().parameters();
  return finite(module.arena().parameters()) && (statistics.numel() == 0 || finite(statistics));
}

std::string first_not_finite(nn::GraphModule& module, const at::Tensor& inputs) {
  if (inputs.is_floating_point() && !finite(inputs)) return "the batch itself holds values that are not numbers";
  std::string found;
  nn::Pass pass;
  pass.training = false;
  const auto& entries = module.arena().entries();
  module.run(inputs, pass, nullptr, [&](const graph::Layer& layer, const at::Tensor& output) {
    if (!found.empty()) return;
    for (std::size_t i = 0; i < entries.size() && found.empty(); ++i) {
      const std::string& name = entries[i].name;  // "layer.weight"; a layer's name may be the beginning of others'
      if (name.substr(0, name.rfind('.')) == layer.name && !finite(module.arena().parameter(i)))
        found = fmt::format("'{}' of layer '{}' is not finite", name, layer.name);
    }
    if (found.empty() && !finite(output)) found = fmt::format("the output of layer '{}' is not finite", layer.name);
  });
  return found.empty() ? "the loss itself overflowed" : found;
}

}  // namespace paceline::train
