#include "paceline/nn/graph_module.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/graph/units.h"
#include "paceline/nn/init.h"
#include "paceline/nn/ops/fused_norm.h"

namespace paceline::nn {
namespace {

using graph::Kind;

std::vector<tensor::Spec> specs_of(const graph::Graph& graph, bool trainable) {
  std::vector<tensor::Spec> specs;
  for (const graph::Parameter& parameter : graph.parameters())
    if (parameter.trainable == trainable) specs.push_back({parameter.name, parameter.shape, parameter.decay});
  return specs;
}

tensor::Arena::Options arena_options(const GraphModule::Options& options, bool trainable) {
  tensor::Arena::Options arena;
  arena.tensor = at::TensorOptions().device(options.device).dtype(options.dtype);
  arena.channels_last = options.device.is_cuda();
  arena.gradients = trainable;
  arena.allocate = options.allocate;
  return arena;
}

/// The graph's own softmax_loss is computed with the target, outside the module.
std::size_t layers_to_run(const graph::Graph& graph) { return static_cast<std::size_t>(graph.logits()) + 1; }

/// A layer that does not lead to the logits would never get a gradient.
void require_all_read(const graph::Graph& graph) {
  const auto logits = static_cast<std::size_t>(graph.logits());
  std::vector<bool> read(graph.layers().size(), false);
  for (const graph::Layer& layer : graph.layers())
    for (int input : layer.inputs) read[static_cast<std::size_t>(input)] = true;
  for (std::size_t i = 1; i < read.size(); ++i)
    if (!read[i] && i != logits && graph.layers()[i].kind != Kind::softmax_loss)
      throw ConfigError(fmt::format("network '{}': nothing reads layer '{}'; leave it out", graph.network(), graph.layers()[i].name));
}

}  // namespace

GraphModule::GraphModule(graph::Graph graph, const Options& options)
    : graph_(std::move(graph)),
      options_(options),
      device_(options.device),
      compute_(options.precision == tensor::Precision::bf16 ? c10::kBFloat16 : options.dtype),
      channels_last_(options.device.is_cuda()),
      fuse_norms_(options.fuse_norms),
      arena_(specs_of(graph_, true), arena_options(options, true)),
      statistics_(specs_of(graph_, false), arena_options(options, false)) {
  initialise(graph_, options.seed, arena_, statistics_);
  if (compute_ != options.dtype) compute_copy_ = at::zeros({arena_.length()}, arena_.parameters().options().dtype(compute_));
  refresh();
  cut_into_units();
  build_nodes();
  register_names();
}

std::shared_ptr<Model> GraphModule::another() const {
  Options options = options_;
  options.allocate = tensor::allocate_pages;
  return std::make_shared<GraphModule>(graph_, options);
}

std::vector<Part> GraphModule::parts() const {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < layers_to_run(graph_); ++i) parts.push_back({.name = fmt::format("layer '{}'", graph_.layers()[i].name)});
  std::size_t entry = 0, statistic = 0;
  for (const graph::Parameter& parameter : graph_.parameters()) {
    Part& part = parts.at(static_cast<std::size_t>(parameter.layer));
    if (parameter.trainable) part.parameters.push_back(entry++);
    else part.statistics.push_back(statistic++);
  }
  return parts;
}

void GraphModule::refresh() {
  at::NoGradGuard no_grad;
  if (compute_copy_.defined()) compute_copy_.copy_(arena_.parameters());
}

std::vector<bool> GraphModule::overwritable_inputs() const {
  const auto& layers = graph_.layers();
  std::vector<int> readers(layers.size(), 0);
  for (const graph::Layer& layer : layers)
    for (int input : layer.inputs) ++readers[static_cast<std::size_t>(input)];
  std::vector<bool> result(layers.size(), false);
  for (std::size_t i = 1; i < layers_to_run(graph_); ++i) {
    const auto source = static_cast<std::size_t>(layers[i].inputs[0]);
    const bool same_unit = std::ranges::none_of(begins_, [&](std::size_t begin) { return source < begin && begin <= i; });
    result[i] = op_kind(layers[i].kind).can_overwrite_input && source != 0 && same_unit && readers[source] == 1 &&
                op_kind(layers[source].kind).output_may_be_overwritten;
  }
  return result;
}

void GraphModule::cut_into_units() {
  const auto& layers = graph_.layers();
  const std::size_t end = layers_to_run(graph_);
  for (const graph::Unit& unit : graph::units_of(graph_)) {
    units_.push_back({.name = unit.name});
    begins_.push_back(unit.first);
  }
  begins_.push_back(end);
  for (const std::size_t begin : begins_) {
    std::vector<int>& crossing = crossing_.emplace_back();
    for (std::size_t i = begin; i < end; ++i)
      for (const int input : layers[i].inputs)
        if (static_cast<std::size_t>(input) < begin && std::ranges::find(crossing, input) == crossing.end()) crossing.push_back(input);
  }
  crossing_.back() = {graph_.logits()};
  std::size_t entry = 0, unit = 0;
  for (const graph::Parameter& parameter : graph_.parameters()) {
    if (!parameter.trainable) {
      momenta_.push_back(layers[static_cast<std::size_t>(parameter.layer)].momentum);
      continue;
    }
    while (static_cast<std::size_t>(parameter.layer) >= begins_[unit + 1]) units_[++unit].first_entry = entry;
    for (std::size_t after = unit; after < units_.size(); ++after) units_[after].last_entry = entry + 1;
    ++entry;
  }
  for (std::size_t after = unit + 1; after < units_.size(); ++after) units_[after].first_entry = entry;
  for (std::size_t i = 0; i < units_.size(); ++i) arena_.set_unit(i, units_[i].first_entry, units_[i].last_entry);
}

void GraphModule::build_nodes() {
  const auto& layers = graph_.layers();
  require_all_read(graph_);
  const std::vector<bool> in_place = overwritable_inputs();
  nodes_.resize(layers_to_run(graph_));
  last_use_.assign(nodes_.size(), 0);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    nodes_[i].op = op_kind(layers[i].kind).make(layers[i], in_place[i]);
    nodes_[i].inputs = layers[i].inputs;
    const bool may_drop = layers[i].kind == Kind::dropout || layers[i].kind == Kind::attention;
    uses_chance_ = uses_chance_ || (may_drop && layers[i].probability > 0);
  }

  std::size_t entry = 0, statistic = 0;
  for (const graph::Parameter& parameter : graph_.parameters()) {
    Node& node = nodes_.at(static_cast<std::size_t>(parameter.layer));
    if (!parameter.trainable) {
      node.weights.statistics.push_back(statistics_.parameter(statistic++));
      continue;
    }
    if (node.weights.values.empty()) node.first_entry = entry;
    // Batch norms keep their weights in the arena's precision; everything else computes with the copy.
    const bool copy = compute_copy_.defined() && layers[static_cast<std::size_t>(parameter.layer)].kind != Kind::batch_norm;
    node.weights.values.push_back(copy ? arena_.view(compute_copy_, entry) : arena_.parameter(entry));
    node.weights.gradients.push_back(arena_.gradient(entry));
    node.last_entry = ++entry;
  }

  if (fuse_norms_) fuse_norms();
  for (std::size_t i = 1; i < nodes_.size(); ++i)
    for (int input : nodes_[i].inputs) last_use_[static_cast<std::size_t>(input)] = static_cast<int>(i);

  // The gradient of an input is wanted where parameters lie before it.
  std::vector<bool> depends(nodes_.size(), false);
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    nodes_[i].wants_input = false;
    for (int input : nodes_[i].inputs) nodes_[i].wants_input = nodes_[i].wants_input || depends[static_cast<std::size_t>(input)];
    depends[i] = nodes_[i].wants_input || !nodes_[i].weights.values.empty();
  }
}

// On a GPU a batch norm takes the relu behind it, and the residual sum between them, into its own kernels. The node of the last of
// these layers does the work of all.
void GraphModule::fuse_norms() {
  const auto& layers = graph_.layers();
  std::vector<int> readers(layers.size(), 0);
  for (const graph::Layer& layer : layers)
    for (int input : layer.inputs) ++readers[static_cast<std::size_t>(input)];
  const auto norm_at = [&](int index) {  // a norm that nobody else reads, not yet part of another node
    const auto i = static_cast<std::size_t>(index);
    return layers[i].kind == Kind::batch_norm && readers[i] == 1 && nodes_[i].op && can_fuse(layers[i], device_, compute_);
  };
  const auto fuse = [&](int norm, std::size_t into, const FusedNorm& with, std::vector<int> inputs) {
    Node taken = std::move(nodes_[static_cast<std::size_t>(norm)]);
    nodes_[static_cast<std::size_t>(norm)] = {};
    taken.op = make_fused_norm(layers[static_cast<std::size_t>(norm)], with);
    taken.inputs = std::move(inputs);
    nodes_[into] = std::move(taken);
  };
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    if (layers[i].kind != Kind::relu) continue;
    const int before = layers[i].inputs[0];
    if (norm_at(before)) {
      fuse(before, i, {.relu = true}, {layers[static_cast<std::size_t>(before)].inputs[0]});
      continue;
    }
    const graph::Layer& sum = layers[static_cast<std::size_t>(before)];
    if (sum.kind != Kind::add || readers[static_cast<std::size_t>(before)] != 1) continue;
    for (std::size_t side = 0; side < 2; ++side) {
      if (!norm_at(sum.inputs[side])) continue;
      fuse(sum.inputs[side], i, {.relu = true, .residual = true},
           {layers[static_cast<std::size_t>(sum.inputs[side])].inputs[0], sum.inputs[1 - side]});
      nodes_[static_cast<std::size_t>(before)] = {};
      break;
    }
  }
  for (std::size_t i = 1; i < nodes_.size(); ++i)  // those with nothing to take along
    if (norm_at(static_cast<int>(i))) fuse(static_cast<int>(i), i, {}, {layers[i].inputs[0]});
}

// "layer1.0.conv1.weight" becomes parameter `weight` of module `conv1` of module `0` of module `layer1`: PyTorch's state_dict.
void GraphModule::register_names() {
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules;
  const auto place = [&](const std::string& path) -> std::pair<torch::nn::Module*, std::string> {
    torch::nn::Module* owner = this;
    std::size_t begin = 0;
    for (std::size_t dot = path.find('.'); dot != std::string::npos; begin = dot + 1, dot = path.find('.', begin)) {
      auto& child = modules[path.substr(0, dot)];
      if (!child) child = owner->register_module(path.substr(begin, dot - begin), std::make_shared<torch::nn::Module>());
      owner = child.get();
    }
    return {owner, path.substr(begin)};
  };
  for (std::size_t i = 0; i < arena_.entries().size(); ++i) {
    const auto [owner, name] = place(arena_.entries()[i].name);
    leaves_.push_back(owner->register_parameter(name, arena_.parameter(i)));
    leaves_.back().mutable_grad() = arena_.gradient_leaf(i);
  }
  for (std::size_t i = 0; i < statistics_.entries().size(); ++i) {
    const auto [owner, name] = place(statistics_.entries()[i].name);
    running_.push_back(owner->register_buffer(name, statistics_.parameter(i)));
  }
}

void GraphModule::restore_gradients() { tensor::restore_gradients(arena_, leaves_); }

namespace {

/// The whole module as one node of a user's autograd graph. Gradients of parameters go to the arena, which the parameters' .grad views.
class ModuleFunction : public torch::autograd::Function<ModuleFunction> {
 public:
  // The second tensor is any parameter: it makes autograd call backward() even when the input needs no gradient.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, const at::Tensor&, GraphModule* module) {
    auto trace = std::make_shared<Trace>();
    Pass pass;
    pass.training = module->is_training();
    at::Tensor out = module->run(input, pass, trace.get());
    context->saved_data["wants_input"] = input.requires_grad();
    context->saved_data["training"] = pass.training;
    context->saved_data["run"] = c10::IValue::make_capsule(c10::make_intrusive<Run>(module, trace));
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto run = c10::static_intrusive_pointer_cast<Run>(context->saved_data["run"].toCapsule());
    Pass pass;
    pass.training = context->saved_data["training"].toBool();
    pass.accumulate = true;  // as autograd does: zero_grad() is the user's to call
    run->module->restore_gradients();
    const bool wants_input = context->saved_data["wants_input"].toBool();
    at::Tensor input = run->module->back(gradients[0], pass, *run->trace, nullptr, wants_input);
    run->module->restore_gradients();  // frozen parameters got theirs as well
    return {wants_input ? input : at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  struct Run : torch::CustomClassHolder {
    Run(GraphModule* ran, std::shared_ptr<Trace> left) : module(ran), trace(std::move(left)) {}
    GraphModule* module;
    std::shared_ptr<Trace> trace;
  };
};

}  // namespace

void GraphModule::take_back() {
  tensor::take_back(arena_, leaves_);
  tensor::take_back(statistics_, running_);
}

at::Tensor GraphModule::forward(const at::Tensor& input) {
  take_back();
  refresh();  // an optimizer of the user's does not know of it
  const auto trained = std::ranges::find_if(leaves_, [](const at::Tensor& leaf) { return leaf.requires_grad(); });
  if (at::GradMode::is_enabled() && (trained != leaves_.end() || input.requires_grad()))
    return ModuleFunction::apply(input, trained == leaves_.end() ? input : *trained, this);
  Pass pass;
  pass.training = is_training();
  return run(input, pass, nullptr);
}

}  // namespace paceline::nn
