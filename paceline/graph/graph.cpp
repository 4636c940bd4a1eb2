#include "paceline/graph/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/mesh_refusal.h"
#include "paceline/graph/infer.h"

namespace paceline::graph {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::input: return "input";
    case Kind::conv: return "conv";
    case Kind::fc: return "fc";
    case Kind::batch_norm: return "batch_norm";
    case Kind::layer_norm: return "layer_norm";
    case Kind::relu: return "relu";
    case Kind::relu6: return "relu6";
    case Kind::gelu: return "gelu";
    case Kind::tanh: return "tanh";
    case Kind::sigmoid: return "sigmoid";
    case Kind::max_pool: return "max_pool";
    case Kind::avg_pool: return "avg_pool";
    case Kind::global_pool: return "global_pool";
    case Kind::lrn: return "lrn";
    case Kind::dropout: return "dropout";
    case Kind::add: return "add";
    case Kind::concat: return "concat";
    case Kind::flatten: return "flatten";
    case Kind::embedding: return "embedding";
    case Kind::attention: return "attention";
    case Kind::experts: return "experts";
    case Kind::softmax_loss: return "softmax_loss";
  }
  throw InternalError("a layer kind without a name");
}

std::int64_t elements(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

std::int64_t expert_slots(const Layer& layer) {
  const std::int64_t positions = layer.output.at(0);
  const double even = static_cast<double>(layer.experts_top * positions) / static_cast<double>(layer.experts);
  return std::min(static_cast<std::int64_t>(std::ceil(layer.expert_capacity * even)), positions);
}

void check_experts(std::int64_t experts, std::int64_t workers) {
  if (experts == 0 || experts % workers == 0) return;
  std::int64_t fewer = std::min(workers, experts);
  while (experts % fewer > 0) --fewer;
  const std::int64_t below = experts - experts % workers, above = below + workers;
  throw MeshRefusal(fmt::format("model.experts={} cannot be divided evenly among the {} data-parallel workers; use model.experts={}, or ",
                                experts, workers, below > 1 ? fmt::format("{} or {}", below, above) : std::to_string(above)),
                    fmt::format("parallel.data={}", fewer));
}

Graph::Graph(std::string network, Shape input, std::int64_t classes) : network_(std::move(network)), classes_(classes) {
  // Three sides of 2¹⁹ make 2⁵⁹ bytes: the input alone never reaches kLargest.
  constexpr std::int64_t kLargestSide = 1 << 19;
  bool sound = !input.empty() && input.size() <= 3;
  for (std::int64_t size : input) sound = sound && size >= 1 && size <= kLargestSide;
  if (!sound)
    throw ConfigError(
        fmt::format("network '{}': an input has one to three sizes of 1 to {}, not [{}]", network_, kLargestSide, fmt::join(input, ", ")));
  if (classes < 1) throw ConfigError(fmt::format("network '{}': classes must be at least 1, not {}", network_, classes));
  Layer layer;
  layer.name = "input";
  layer.output = std::move(input);
  layer.activation_bytes = 4 * elements(layer.output);
  activation_bytes_ = layer.activation_bytes;
  names_.insert(layer.name);
  layers_.push_back(std::move(layer));
}

int Graph::append(Layer layer) {
  std::vector<Shape> inputs;
  for (int index : layer.inputs) {
    if (index < 0 || index >= static_cast<int>(layers_.size()))
      throw ConfigError(fmt::format("layer '{}' ({}): input {} is not an earlier layer", layer.name, name_of(layer.kind), index));
    inputs.push_back(layers_[index].output);
  }
  if (layer.name.empty() || names_.contains(layer.name))
    throw ConfigError(
        fmt::format("layer {} ({}): the name '{}' is empty or taken; names must differ", layers_.size(), name_of(layer.kind), layer.name));
  infer(layer, inputs);
  if (layer.table >= 0) check_table(layer, inputs[0]);
  if (parameter_count_ + layer.parameters > kLargest || macs_ + layer.macs > kLargest ||
      activation_bytes_ + layer.activation_bytes > kLargest)
    throw ConfigError(fmt::format("layer '{}': the network grows too large to count; use smaller sizes", layer.name));
  parameter_count_ += layer.parameters;
  macs_ += layer.macs;
  activation_bytes_ += layer.activation_bytes;
  names_.insert(layer.name);
  layers_.push_back(std::move(layer));
  return static_cast<int>(layers_.size()) - 1;
}

void Graph::check_table(const Layer& layer, const Shape& input) const {
  const Layer* table = layer.table < static_cast<int>(layers_.size()) ? &layers_[static_cast<std::size_t>(layer.table)] : nullptr;
  const bool fits = table && table->kind == Kind::embedding && table->vocabulary == layer.channels && table->channels == input.back();
  if (layer.kind != Kind::fc || layer.bias || !fits || tied() >= 0)
    throw ConfigError(
        fmt::format("layer '{}': the weight of one fully connected layer without bias can be an embedding's table, which has a row of as "
                    "many features as its input for each of its outputs",
                    layer.name));
}

void Graph::draw_as_layers() {
  for (Layer& layer : layers_)
    if (layer.init != Init::zero) layer.init = Init::standard;
}

int Graph::tied() const {
  const auto found = std::ranges::find_if(layers_, [](const Layer& layer) { return layer.table >= 0; });
  return found == layers_.end() ? -1 : static_cast<int>(found - layers_.begin());
}

std::vector<Alias> Graph::aliases() const {
  if (tied() < 0) return {};
  const Layer& head = layers_[static_cast<std::size_t>(tied())];
  return {{head.name + ".weight", layers_[static_cast<std::size_t>(head.table)].name + ".wte.weight"}};
}

int Graph::logits() const {
  const int last = static_cast<int>(layers_.size()) - 1;
  return layers_[last].kind == Kind::softmax_loss ? layers_[last].inputs[0] : last;
}

std::vector<Parameter> Graph::parameters() const {
  std::vector<Parameter> all;
  for (int index = 1; index < static_cast<int>(layers_.size()); ++index) {
    const Layer& layer = layers_[index];
    for (Parameter& tensor : tensors_of(layer, layers_[layer.inputs[0]].output)) {
      tensor.layer = index;
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

Counts Graph::counts() const {
  Counts counts;
  for (const Layer& layer : layers_) {
    const bool pools = layer.kind == Kind::max_pool || layer.kind == Kind::avg_pool || layer.kind == Kind::global_pool;
    counts.conv += layer.kind == Kind::conv;
    counts.fc += layer.kind == Kind::fc;
    counts.pool += pools && layer.counted_as_pool;
  }
  return counts;
}

}  // namespace paceline::graph
