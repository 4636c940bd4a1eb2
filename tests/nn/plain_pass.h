// A forward and a backward pass without the economies of GraphModule: no layer writes over its input, every output and every saved tensor
// is kept, every input's gradient is computed. The module must give the same bits.
#pragma once

#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "paceline/nn/graph_module.h"

namespace paceline::nn {

struct PlainPass {
  at::Tensor logits, input_gradient;
  Tensors gradients;   // by arena entry
  Tensors statistics;  // what the running statistics become
};

/// `gradient_of` gives the logits' gradient. Leaves the module as it was.
inline PlainPass plain_pass(GraphModule& module, const at::Tensor& input, const Pass& pass,
                            const std::function<at::Tensor(const at::Tensor&)>& gradient_of) {
  torch::NoGradGuard no_grad;
  const auto& layers = module.graph().layers();
  const std::size_t count = static_cast<std::size_t>(module.graph().logits()) + 1;
  PlainPass result;
  std::vector<Weights> weights(layers.size());
  for (const graph::Parameter& parameter : module.graph().parameters()) {
    Weights& of = weights[static_cast<std::size_t>(parameter.layer)];
    if (parameter.trainable) {
      of.values.push_back(module.arena().parameter(result.gradients.size()));
      of.gradients.push_back(at::zeros_like(of.values.back()));
      result.gradients.push_back(of.gradients.back());
    } else {
      of.statistics.push_back(module.statistics().parameter(result.statistics.size()).clone());
      result.statistics.push_back(of.statistics.back());
    }
  }

  Tensors outputs(count), gradients(count);
  std::vector<Tensors> saved(count);
  std::vector<std::unique_ptr<Op>> ops(count);
  outputs[0] = input;
  for (std::size_t i = 1; i < count; ++i) {
    Tensors inputs;
    for (int source : layers[i].inputs) inputs.push_back(outputs[static_cast<std::size_t>(source)]);
    ops[i] = op_kind(layers[i].kind).make(layers[i], /*in_place=*/false);
    outputs[i] = ops[i]->forward(inputs, weights[i], pass, saved[i]);
  }
  result.logits = outputs.back();
  gradients.back() = gradient_of(result.logits);
  for (std::size_t i = count - 1; i > 0; --i) {
    const Tensors parts = ops[i]->backward(gradients[i], weights[i], pass, saved[i], /*wants_input=*/true);
    for (std::size_t k = 0; k < parts.size(); ++k) {
      at::Tensor& sum = gradients[static_cast<std::size_t>(layers[i].inputs[k])];
      sum = sum.defined() ? sum + parts[k] : parts[k];
    }
  }
  result.input_gradient = gradients[0];
  return result;
}

}  // namespace paceline::nn
