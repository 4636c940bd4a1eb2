#include "paceline/train/diagnose.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

namespace paceline::train {
namespace {

bool finite(const at::Tensor& values) { return at::isfinite(values).all().item<bool>(); }

/// The module's parameters and statistics in the order of layers.
std::vector<at::Tensor> tensors_of(nn::GraphModule& module) {
  std::vector<at::Tensor> tensors;
  std::size_t entry = 0, statistic = 0;
  for (const graph::Parameter& parameter : module.graph().parameters())
    tensors.push_back(parameter.trainable ? module.arena().parameter(entry++) : module.statistics().parameter(statistic++));
  return tensors;
}

}  // namespace

std::optional<Fault> bad_parameter(nn::GraphModule& module, std::int64_t step) {
  const at::Tensor& statistics = module.statistics().parameters();
  if (finite(module.arena().parameters()) && (statistics.numel() == 0 || finite(statistics))) return std::nullopt;
  const std::vector<graph::Parameter> parameters = module.graph().parameters();
  const std::vector<at::Tensor> tensors = tensors_of(module);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!finite(tensors[i])) return Fault{step, parameters[i].layer, static_cast<std::int64_t>(i)};
  return std::nullopt;  // it was the padding between entries, which nobody reads
}

Fault first_fault(nn::GraphModule& module, const at::Tensor& inputs, std::int64_t step, bool training) {
  if (inputs.is_floating_point() && !finite(inputs)) return {step, 0};
  const std::vector<graph::Parameter> parameters = module.graph().parameters();
  const std::vector<at::Tensor> tensors = tensors_of(module);
  std::optional<Fault> found;
  std::size_t looked_at = 0;  // of the parameters
  nn::Pass pass;
  pass.training = training;
  const at::Tensor statistics = module.statistics().parameters().clone();  // batch norms in training change them
  module.run(inputs, pass, nullptr, [&](const graph::Layer& layer, const at::Tensor& output) {
    const std::int64_t index = &layer - module.graph().layers().data();
    for (; !found && looked_at < tensors.size() && parameters[looked_at].layer <= index; ++looked_at)
      if ((parameters[looked_at].trainable || !training) && !finite(tensors[looked_at]))
        found = {step, parameters[looked_at].layer, static_cast<std::int64_t>(looked_at)};
    if (!found && !finite(output)) found = {step, index};
  });
  at::Tensor(module.statistics().parameters()).copy_(statistics);
  return found.value_or(Fault{step, module.graph().logits() + 1});
}

std::string describe(const graph::Graph& graph, const Fault& fault) {
  if (fault.layer == 0) return "the batch itself holds values that are not numbers";
  if (fault.layer > graph.logits()) return "the output of every layer is finite, the loss of them is not";
  const std::string& layer = graph.layers()[static_cast<std::size_t>(fault.layer)].name;
  if (fault.parameter < 0) return fmt::format("the output of layer '{}' is not finite", layer);
  return fmt::format("'{}' of layer '{}' is not finite", graph.parameters()[static_cast<std::size_t>(fault.parameter)].name, layer);
}

}  // namespace paceline::train
