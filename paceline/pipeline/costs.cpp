// What the units of a model cost: counted, or measured.
#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/graph/units.h"
#include "paceline/nn/graph_module.h"
#include "paceline/pipeline/stages.h"

namespace paceline::pipeline {
namespace {

constexpr double kPasses = 3;       // a product goes forward, and back for its input and for its weight
constexpr double kMacsPerByte = 8;  // a byte of activations, written and read in both passes, takes about as long as so many products

Nanoseconds best_of(int times, const Clock& clock, const std::function<void()>& work) {
  Nanoseconds best = Nanoseconds::max();
  for (int i = 0; i < times; ++i) {
    const Nanoseconds began = clock.now();
    work();
    best = std::min(best, clock.now() - began);
  }
  return best;
}

}  // namespace

std::vector<UnitCost> counted_costs(const graph::Graph& graph, std::int64_t bytes_per_parameter) {
  std::vector<UnitCost> costs;
  for (const graph::Unit& unit : graph::units_of(graph)) {
    UnitCost& cost = costs.emplace_back(UnitCost{.name = unit.name});
    const double passes = costs.size() == 1 ? kPasses - 1 : kPasses;  // of the sample nobody wants a gradient
    for (std::size_t i = unit.first; i < unit.last; ++i) {
      const graph::Layer& layer = graph.layers()[i];
      cost.time += passes * static_cast<double>(layer.macs) + kMacsPerByte * static_cast<double>(layer.activation_bytes);
      cost.bytes += layer.parameters * bytes_per_parameter;
      cost.activation_bytes += layer.activation_bytes;
    }
  }
  return costs;
}

std::vector<UnitCost> counted_costs(nn::Model& model) {
  if (const auto* network = dynamic_cast<const nn::GraphModule*>(&model.network())) return counted_costs(network->graph());
  std::vector<UnitCost> costs;
  for (const nn::Unit& unit : model.units()) {
    UnitCost& cost = costs.emplace_back(UnitCost{.name = unit.name, .time = 1});
    for (std::size_t entry = unit.first_entry; entry < unit.last_entry; ++entry) {
      const std::int64_t count = model.arena().entries()[entry].count;
      cost.time += static_cast<double>(count), cost.bytes += 8 * count;
    }
  }
  return costs;
}

std::vector<UnitCost> measured_costs(nn::Model& model, const at::Tensor& inputs, const Clock& clock) {
  constexpr int kTimes = 3;
  std::vector<UnitCost> costs = counted_costs(model);
  nn::Pass pass;
  if (model.device().is_cpu()) pass.generator = at::globalContext().defaultGenerator(model.device()).clone();
  const at::Tensor statistics = model.statistics().parameters().clone();
  nn::Tensors into = {inputs};
  for (std::size_t unit = 0; unit < costs.size(); ++unit) {
    const nn::Units range{unit, unit + 1};
    nn::Tensors out;
    const Nanoseconds time = best_of(kTimes, clock, [&] {
      nn::Trace trace;
      out = model.run(range, into, pass, &trace);
      nn::Tensors gradients;
      for (const at::Tensor& output : out) gradients.push_back(at::ones_like(output));
      model.back(range, gradients, pass, trace, {.inputs = unit > 0}, nullptr);
      tensor::synchronize(model.device());
    });
    costs[unit].time = seconds(time) / static_cast<double>(inputs.size(0));
    into = std::move(out);
  }
  at::Tensor(model.statistics().parameters()).copy_(statistics);
  return costs;
}

}  // namespace paceline::pipeline
