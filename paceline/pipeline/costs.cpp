#include "paceline/pipeline/costs.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace paceline::pipeline {
namespace {

constexpr int kTimes = 3;

/// Seconds of one sample through one unit, forward and backward. `tensors` are the unit's inputs, and become its outputs.
double timed(nn::Model& model, std::size_t unit, nn::Tensors& tensors, const Clock& clock) {
  const nn::Units range{unit, unit + 1};
  nn::Pass pass;
  pass.again = true;  // leaves running statistics unchanged
  const auto masks = model.takes_masks() ? nn::make_masks(model.device()) : nullptr;
  pass.masks = masks.get();
  const auto samples = static_cast<double>(tensors.at(0).size(0));
  nn::Tensors out;
  Nanoseconds best = Nanoseconds::max();
  for (int i = 0; i < kTimes; ++i) {
    const Nanoseconds began = clock.now();
    nn::Trace trace;
    out = model.run(range, tensors, pass, &trace);
    nn::Tensors gradients;
    for (const at::Tensor& output : out) gradients.push_back(at::ones_like(output));
    model.back(range, gradients, pass, trace, {.inputs = unit > 0}, nullptr);
    tensor::synchronize(model.device());
    best = std::min(best, clock.now() - began);
  }
  tensors = std::move(out);
  return seconds(best) / samples;
}

}  // namespace

std::vector<graph::UnitCost> counted_costs(nn::Model& model) {
  if (const auto* network = dynamic_cast<const nn::GraphModule*>(&model.network())) return graph::counted_costs(network->graph());
  std::vector<graph::UnitCost> costs;
  for (const nn::Unit& unit : model.units()) {
    graph::UnitCost& cost = costs.emplace_back(graph::UnitCost{.name = unit.name, .time = 1});
    for (std::size_t entry = unit.first_entry; entry < unit.last_entry; ++entry)
      cost.time += static_cast<double>(model.arena().entries()[entry].count);
  }
  return costs;
}

std::vector<graph::UnitCost> measured_costs(nn::Model& model, const at::Tensor& inputs, const Clock& clock) {
  std::vector<graph::UnitCost> costs = counted_costs(model);
  nn::Tensors tensors = {inputs};
  for (std::size_t unit = 0; unit < costs.size(); ++unit) costs[unit].time = timed(model, unit, tensors, clock);
  return costs;
}

std::vector<graph::UnitCost> measured_costs(const graph::Graph& graph, nn::GraphModule::Options options, const at::Tensor& inputs,
                                            const Clock& clock) {
  std::vector<graph::UnitCost> costs = graph::counted_costs(graph);
  options.tensor = nullptr, options.sequence = false, options.allocate = tensor::allocate_pages;
  nn::Tensors tensors = {inputs};
  for (std::size_t unit = 0; unit < costs.size(); ++unit) {
    options.held = {{unit, unit + 1}};
    nn::GraphModule module(graph, options);
    costs[unit].time = timed(module, unit, tensors, clock);
  }
  return costs;
}

}  // namespace paceline::pipeline
