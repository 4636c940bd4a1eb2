#include "paceline/nn/graph_module.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/graph/units.h"
#include "paceline/nn/init.h"

namespace paceline::nn {
namespace {

std::vector<tensor::Spec> specs_of(const std::vector<HeldParameter>& held, bool trainable) {
  std::vector<tensor::Spec> specs;
  for (const HeldParameter& each : held)
    if (each.parameter.trainable == trainable) specs.push_back({each.parameter.name, each.shape(), each.parameter.decay, each.slice});
  return specs;
}

bool has_16_bits(c10::ScalarType dtype) { return dtype == c10::kHalf || dtype == c10::kBFloat16; }

/// The type of activations and products. LibTorch has no fp16 products on the CPU.
c10::ScalarType compute_type(const GraphModule::Options& options) {
  if (options.precision == tensor::Precision::bf16) return c10::kBFloat16;
  return has_16_bits(options.dtype) ? c10::kFloat : options.dtype;
}

tensor::Arena::Options arena_options(const GraphModule::Options& options, bool trainable) {
  tensor::Arena::Options arena;
  const c10::ScalarType dtype = !trainable && has_16_bits(options.dtype) ? c10::kFloat : options.dtype;  // statistics need higher precision
  arena.tensor = at::TensorOptions().device(options.device).dtype(dtype);
  arena.channels_last = options.device.is_cuda();
  arena.gradients = trainable, arena.gradient_dtype = options.gradient_dtype;
  arena.allocate = options.allocate;
  return arena;
}

/// The graph's own softmax_loss is computed with the target, outside the module.
std::size_t layers_to_run(const graph::Graph& graph) { return static_cast<std::size_t>(graph.logits()) + 1; }

std::vector<Unit> units_in(const graph::Graph& graph) {
  std::vector<Unit> units;
  for (const graph::Unit& unit : graph::units_of(graph)) units.push_back({.name = unit.name});
  return units;
}

std::vector<std::size_t> first_layers(const graph::Graph& graph) {
  std::vector<std::size_t> begins;
  for (const graph::Unit& unit : graph::units_of(graph)) begins.push_back(unit.first);
  begins.push_back(layers_to_run(graph));
  return begins;
}

/// For each border, the layers before it whose outputs are read after it, in the order in which they are read.
std::vector<std::vector<int>> crossing_layers(const graph::Graph& graph, const std::vector<std::size_t>& borders) {
  std::vector<std::vector<int>> result;
  for (const std::size_t border : borders) {
    std::vector<int>& crossing = result.emplace_back();
    for (std::size_t i = border; i < borders.back(); ++i)
      for (const int input : graph.layers()[i].inputs)
        if (static_cast<std::size_t>(input) < border && std::ranges::find(crossing, input) == crossing.end()) crossing.push_back(input);
  }
  result.back() = {graph.logits()};
  return result;
}

/// Null if no layers are shared.
std::unique_ptr<TensorAxis> axis_of(const graph::TensorSplit& split, comm::Communicator* spread, const GraphModule::Options& options) {
  comm::Communicator* const sharing = split.hybrid ? spread : split.parts > 1 ? options.tensor : nullptr;
  return sharing ? std::make_unique<TensorAxis>(*sharing, options.clock) : nullptr;
}

std::optional<tensor::Slice> slice_of(const graph::LocalTensor& local, tensor::Across across) {
  if (!local.slice) return std::nullopt;
  tensor::Slice slice{.dim = local.slice->dim, .all = local.slice->all, .runs = {}, .across = across};
  for (const graph::Slice::Run& run : local.slice->runs) slice.runs.push_back({run.first, run.count});
  return slice;
}

tensor::Slice spread_slice(const graph::Parameter& whole, const comm::Communicator& workers) {
  graph::check_experts(whole.shape[0], workers.size());
  const std::int64_t own = whole.shape[0] / workers.size();
  return {.dim = 0, .all = whole.shape[0], .runs = {{own * workers.rank(), own}}, .across = tensor::Across::data};
}

/// The graph, if all its layers lead to the logits: a layer that does not is in no unit, and would never get a gradient.
graph::Graph all_read(graph::Graph graph) {
  const auto logits = static_cast<std::size_t>(graph.logits());
  std::vector<bool> read(graph.layers().size(), false);
  for (const graph::Layer& layer : graph.layers())
    for (int input : layer.inputs) read[static_cast<std::size_t>(input)] = true;
  for (std::size_t i = 1; i < read.size(); ++i)
    if (!read[i] && i != logits && graph.layers()[i].kind != graph::Kind::softmax_loss)
      throw ConfigError(fmt::format("network '{}': nothing reads layer '{}'; leave it out", graph.network(), graph.layers()[i].name));
  return graph;
}

}  // namespace

GraphModule::GraphModule(graph::Graph graph, const Options& options)
    : graph_(all_read(std::move(graph))),
      options_(options),
      split_(options.hybrid ? *options.hybrid : graph::tensor_split(graph_, options.tensor ? options.tensor->size() : 1, options.sequence)),
      spread_(options.data && options.data->size() > 1 ? options.data->split(0, options.data->rank()) : nullptr),
      axis_(axis_of(split_, spread_.get(), options)),
      experts_axis_(spread_ ? std::make_unique<TensorAxis>(*spread_, options.clock) : nullptr),
      device_(options.device),
      compute_(compute_type(options)),
      channels_last_(options.device.is_cuda()),
      fuse_norms_(options.fuse_norms && !has_16_bits(options.dtype)),
      units_(units_in(graph_)),
      begins_(first_layers(graph_)),
      crossing_(crossing_layers(graph_, begins_)),
      held_(held_parameters()),
      arena_(specs_of(held_, true), arena_options(options, true)),
      statistics_(specs_of(held_, false), arena_options(options, false)) {
  list_names();
  initialise(graph_, held_, options.seed, arena_, statistics_);
  if (compute_ != options.dtype) {
    compute_copy_ = tensor::allocate_pages(arena_.length(), arena_.parameters().options().dtype(compute_));
    copy_backing_ = arena_.back(tensor::Role::parameter, compute_copy_);
  }
  refresh();
  assign_entries();
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
  for (const auto& [parameter, index, slice] : held_) {
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

void GraphModule::units_came(Units units) {
  if (!compute_copy_.defined()) return;
  at::NoGradGuard no_grad;
  const tensor::OwnedRange range = arena_.range_of(units_[units.first].first_entry, units_[units.last - 1].last_entry);
  copy_backing_->commit(range.begin, range.end);
  compute_copy_.narrow(0, range.begin, range.count()).copy_(arena_.parameters().narrow(0, range.begin, range.count()));
}

void GraphModule::units_go(Units units) {
  if (!compute_copy_.defined()) return;
  const tensor::OwnedRange range = arena_.range_of(units_[units.first].first_entry, units_[units.last - 1].last_entry);
  copy_backing_->release(range.begin, range.end);
}

bool GraphModule::holds(std::size_t unit) const {
  return options_.held.empty() ||
         std::ranges::any_of(options_.held, [&](const Units& range) { return range.first <= unit && unit < range.last; });
}

std::size_t GraphModule::unit_of(int layer) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins_, static_cast<std::size_t>(layer)) - begins_.begin()) - 1;
}

bool GraphModule::holds_tied() const {
  const int head = graph_.tied();
  return head >= 0 && holds(unit_of(head)) && holds(unit_of(graph_.layers()[static_cast<std::size_t>(head)].table));
}

std::vector<HeldParameter> GraphModule::held_parameters() const {
  std::vector<HeldParameter> held;
  std::size_t unit = 0, trainable = 0, statistic = 0;
  const tensor::Across across = split_.hybrid ? tensor::Across::data : tensor::Across::tensor;
  for (const graph::LocalTensor& local : graph::local_tensors(graph_, split_, axis_ ? axis_->rank() : 0)) {
    while (static_cast<std::size_t>(local.whole.layer) >= begins_[unit + 1]) ++unit;
    const std::size_t index = local.whole.trainable ? trainable++ : statistic++;
    const bool spread = local.whole.spread && spread_;
    if (holds(unit)) held.push_back({local.whole, index, spread ? spread_slice(local.whole, *spread_) : slice_of(local, across)});
  }
  return held;
}

void GraphModule::list_names() {
  std::vector<tensor::Listed> parameters, statistics;
  std::size_t entry = 0, statistic = 0;
  for (auto held = held_.begin(); const graph::Parameter& parameter : graph_.parameters()) {
    const bool mine = held != held_.end() && held->parameter.name == parameter.name;
    if (mine) ++held;
    std::size_t& next = parameter.trainable ? entry : statistic;
    (parameter.trainable ? parameters : statistics)
        .push_back({parameter.name, parameter.shape, mine ? std::optional(next++) : std::nullopt});
  }
  arena_.set_listing(std::move(parameters)), statistics_.set_listing(std::move(statistics));
}

void GraphModule::assign_entries() {
  const auto& layers = graph_.layers();
  std::size_t entry = 0, unit = 0;
  for (const auto& [parameter, index, slice] : held_) {
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
    pass.accumulate = true;  // as autograd does: the user calls zero_grad()
    pass.weight = static_cast<double>(gradients[0].size(-1)) / static_cast<double>(gradients[0].numel());  // of a mean over targets
    run->module->restore_gradients();
    const bool wants_input = context->saved_data["wants_input"].toBool();
    at::Tensor input = run->module->back(gradients[0], pass, *run->trace, nullptr, wants_input);
    run->module->restore_gradients();  // frozen parameters have also got gradients
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

Traffic GraphModule::traffic() const {
  Traffic traffic = axis_ ? axis_->traffic() : Traffic{};
  if (split_.hybrid) std::swap(traffic.bytes_data, traffic.bytes_tensor);
  if (experts_axis_) {
    Traffic experts = experts_axis_->traffic();
    std::swap(experts.bytes_data, experts.bytes_tensor);  // a TensorAxis counts its bytes as those of the tensor axis
    traffic += experts;
  }
  return traffic;
}

void GraphModule::take_back() {
  tensor::take_back(arena_, leaves_);
  tensor::take_back(statistics_, running_);
}

at::Tensor GraphModule::forward(const at::Tensor& input) {
  take_back();
  refresh();  // a user's optimizer does not call it
  const auto trained = std::ranges::find_if(leaves_, [](const at::Tensor& leaf) { return leaf.requires_grad(); });
  const bool trains = at::GradMode::is_enabled() && (trained != leaves_.end() || input.requires_grad());
  if (trains && spread_)
    throw ConfigError(
        fmt::format("network '{}' is divided among {} workers, which exchange samples in its layers, but autograd's backward pass does not "
                    "know the workers' shares; use run() and back() with Pass::shares, or forward() under torch::NoGradGuard",
                    graph_.network(), spread_->size()));
  if (trains) return ModuleFunction::apply(input, trained == leaves_.end() ? input : *trained, this);
  Pass pass;
  pass.training = is_training();
  return run(input, pass, nullptr);
}

}  // namespace paceline::nn
