#include "paceline/nn/module_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/nn/module_parts.h"

namespace paceline::nn {
namespace {

template <class... Kinds>
bool any_in_place(const torch::nn::Module& module) {
  const auto in_place = [&](const auto* layer) { return layer && layer->options.inplace(); };
  return (in_place(module.as<Kinds>()) || ...);
}

/// Whether a layer overwrites its input, which another unit may still need.
bool works_in_place(const torch::nn::Module& module) {
  using namespace torch::nn;
  return any_in_place<ReLUImpl, ReLU6Impl, LeakyReLUImpl, RReLUImpl, ELUImpl, SELUImpl, CELUImpl, HardtanhImpl, ThresholdImpl, DropoutImpl,
                      Dropout2dImpl, Dropout3dImpl, AlphaDropoutImpl>(module);
}

std::vector<ModuleModel::Block> children_of(const torch::nn::Sequential& sequence) {
  std::vector<ModuleModel::Block> blocks;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;  // of children, by block
  std::size_t child = 0;
  for (const auto& item : sequence->named_children()) {
    if (blocks.empty() || !works_in_place(*item.value())) blocks.push_back({item.key(), {}}), ranges.emplace_back(child, child);
    ranges.back().second = ++child;
  }
  if (blocks.empty()) throw ConfigError("the sequence has no layers; add some before training");
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i].forward = [children = sequence.ptr().get(), range = ranges[i]](at::Tensor value) {
      for (std::size_t k = range.first; k < range.second; ++k)
        value = (children->begin() + static_cast<std::ptrdiff_t>(k))->template forward<at::Tensor>(value);
      return value;
    };
  return blocks;
}

/// Whether it is in the arena of some rank.
bool listed(const tensor::Arena& arena, const std::string& name) {
  const std::vector<tensor::Listed> all = arena.listing();
  return std::ranges::find(all, name, &tensor::Listed::name) != all.end();
}

/// Leaves the buffers of units unchanged while they are recomputed: running statistics, and batch counters.
class BuffersStay {
 public:
  BuffersStay() = default;
  ~BuffersStay() {
    const at::NoGradGuard no_grad;
    // Without incrementing the version counter: autograd has saved these tensors, but does not need them after a pass in training mode.
    for (const auto& [buffer, value] : before_) buffer.variable_data().copy_(value);
  }
  BuffersStay(const BuffersStay&) = delete;
  BuffersStay& operator=(const BuffersStay&) = delete;

  void add(const torch::nn::Module& module, const Unit& unit) {
    for (const auto& item : module.named_buffers())
      if (item.value().defined() && belongs_to(item.key(), unit.name)) before_.emplace_back(item.value(), item.value().detach().clone());
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

}  // namespace

ModuleModel::ModuleModel(std::shared_ptr<torch::nn::Module> module, Forward forward, tensor::Allocate allocate)
    : ModuleModel(std::move(module), std::vector<Block>{{"", std::move(forward)}}, std::move(allocate)) {}

ModuleModel::ModuleModel(const torch::nn::Sequential& children, tensor::Allocate allocate)
    : ModuleModel(children.ptr(), children_of(children), std::move(allocate)) {}

ModuleModel::ModuleModel(std::shared_ptr<torch::nn::Module> module, std::vector<Block> blocks, tensor::Allocate allocate)
    : module_(std::move(module)),
      allocate_(std::move(allocate)),
      arena_(tensor::adopt(*module_, allocate_)),
      statistics_(adopt_statistics(*module_, allocate_, arena_.parameters().options())),
      device_(arena_.parameters().device()) {
  for (Block& block : blocks) {
    units_.push_back({.name = block.name});
    forwards_.push_back(std::move(block.forward));
  }
  assign_entries();
  refuse_shared_weights();
}

void ModuleModel::assign_entries() {
  weights_.clear(), momenta_.clear(), buffers_.clear();
  for (Unit& unit : units_) unit.first_entry = unit.last_entry = 0;
  const auto parameters = module_->named_parameters();
  std::size_t unit = 0;
  for (std::size_t entry = 0; entry < arena_.entries().size(); ++entry) {
    const std::string& name = arena_.entries()[entry].name;
    weights_.push_back(parameters[name]);
    while (unit < units_.size() && !belongs_to(name, units_[unit].name)) ++unit;
    if (unit == units_.size())
      throw ConfigError(
          fmt::format("parameter '{}' belongs to none of the remaining blocks; list all blocks with parameters, in the order in which the "
                      "module registers them",
                      name));
    if (units_[unit].last_entry == 0) units_[unit].first_entry = entry;
    units_[unit].last_entry = entry + 1;
    arena_.set_unit(unit, entry, entry + 1);
  }
  for (const tensor::Entry& entry : statistics_.entries()) momenta_.push_back(momentum_of(*module_, entry.name));
  const auto takes = [this](const std::string& name) { return holds(name); };
  for (const auto& [name, buffer] : statistics_of(*module_, arena_.parameters().scalar_type(), takes)) buffers_.push_back(buffer);
}

// A unit's backward pass runs by itself, and only knows weights under the unit's own names.
void ModuleModel::refuse_shared_weights() const {
  const auto unit_of = [&](const std::string& name) {
    return std::ranges::find_if(units_, [&](const Unit& unit) { return belongs_to(name, unit.name); });
  };
  for (const auto& item : module_->named_parameters())
    for (std::size_t entry = 0; entry < weights_.size(); ++entry) {
      const std::string& name = arena_.entries()[entry].name;
      if (!weights_[entry].is_same(item.value()) || unit_of(name) == unit_of(item.key())) continue;
      throw ConfigError(
          fmt::format("parameter '{}' is also '{}', of another block: two blocks cannot share a weight; give the module as one "
                      "unit (nn::model_of, or one block)",
                      name, item.key()));
    }
}

/// Every rank holds what belongs to no unit.
bool ModuleModel::holds(const std::string& name) const {
  if (held_.empty()) return true;
  const auto unit = std::ranges::find_if(units_, [&](const Unit& each) { return belongs_to(name, each.name); });
  const auto index = static_cast<std::size_t>(unit - units_.begin());
  return unit == units_.end() || std::ranges::any_of(held_, [&](const Units& range) { return range.first <= index && index < range.last; });
}

void ModuleModel::keep(const std::vector<Units>& held) {
  const at::NoGradGuard no_grad;
  std::vector<tensor::Listed> parameters = arena_.listing(), statistics = statistics_.listing();
  held_ = held;
  const auto takes = [this](const std::string& name) { return holds(name); };
  arena_ = tensor::adopt(*module_, allocate_, nullptr, takes);
  statistics_ = adopt_statistics(*module_, allocate_, arena_.parameters().options(), takes);
  assign_entries();
  const auto relist = [&](std::vector<tensor::Listed>& listing, tensor::Arena& arena) {
    std::size_t next = 0;
    for (tensor::Listed& item : listing) item.entry = holds(item.name) ? std::optional(next++) : std::nullopt;
    arena.set_listing(listing);
  };
  relist(parameters, arena_), relist(statistics, statistics_);
  const auto give_up = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || holds(name)) return;
    tensor.mutable_grad() = at::Tensor();
    tensor.set_data(at::empty({0}, tensor.options()));
  };
  for (const auto& item : module_->named_parameters()) give_up(item.key(), item.value());
  for (const auto& item : module_->named_buffers()) give_up(item.key(), item.value());
}

std::vector<Untrained> ModuleModel::untrained() const {
  std::vector<Untrained> result;
  for (const auto& item : module_->named_parameters()) {
    const bool trained = std::ranges::any_of(weights_, [&](const at::Tensor& weight) { return weight.is_same(item.value()); });
    if (!trained && !listed(arena_, item.key())) result.push_back({item.key(), item.value().detach(), holds(item.key())});
  }
  for (const auto& item : module_->named_buffers())
    if (item.value().defined() && !is_statistic(item.value(), arena_.parameters().scalar_type()))
      result.push_back({item.key(), item.value(), holds(item.key())});
  return result;
}

void ModuleModel::take_back() {
  arena_.take_back();
  tensor::take_back(statistics_, buffers_);
}

std::unique_lock<std::recursive_mutex> hold_generator() {
  static std::recursive_mutex generator;
  return std::unique_lock(generator);
}

std::shared_ptr<Model> ModuleModel::another() const {
  if (!make_)
    throw ConfigError(
        "workers that are threads of one process need a module each, but this one was given as an object; give the Trainer a function that "
        "makes it");
  const std::shared_ptr<Model> made = make_();
  const at::NoGradGuard no_grad;
  const std::vector<Untrained> here = untrained(), there = made->untrained();  // drawn again there; nothing else would copy them
  ensure(here.size() == there.size(), "modules of one function have the same tensors");
  for (std::size_t i = 0; i < here.size(); ++i) at::Tensor(there[i].tensor).copy_(here[i].tensor);
  return made;
}

std::vector<Part> ModuleModel::parts() const {
  std::vector<Part> parts;
  for (const Unit& unit : units_) {
    Part& part = parts.emplace_back(Part{.name = unit.name.empty() ? "the model" : fmt::format("block '{}'", unit.name)});
    for (std::size_t entry = unit.first_entry; entry < unit.last_entry; ++entry) part.parameters.push_back(entry);
  }
  for (std::size_t entry = 0; entry < statistics_.entries().size(); ++entry) {
    const auto of_unit = [&](const Unit& unit) { return belongs_to(statistics_.entries()[entry].name, unit.name); };
    const auto unit = std::ranges::find_if(units_, of_unit);
    if (unit != units_.end()) parts[static_cast<std::size_t>(unit - units_.begin())].statistics.push_back(entry);
  }
  return parts;
}

void ModuleModel::walk(const at::Tensor& input, const Pass& pass, const Visit& visit) {
  at::Tensor value = input;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    value = run({unit, unit + 1}, {value}, pass, nullptr).at(0);
    visit(unit, value);
  }
}

std::vector<at::Tensor> ModuleModel::weights_of(std::size_t unit) const {
  std::vector<at::Tensor> weights;
  for (std::size_t entry = units_[unit].first_entry; entry < units_[unit].last_entry; ++entry) weights.push_back(weights_[entry]);
  return weights;
}

// saved: the unit's input, then its output with its autograd graph. Units are detached, so that each can go backward by itself.
Tensors ModuleModel::run(Units range, Tensors inputs, const Pass& pass, Trace* trace) {
  if (pass.sum_over_workers && !norms_) norms_.emplace(*module_, pass.sum_over_workers);
  if (!pass.sum_over_workers) norms_.reset();
  at::Tensor value = inputs.at(0);
  const at::AutoGradMode differentiates(trace != nullptr);
  if (trace) trace->begin(units_.size(), units_.size(), range);
  if (module_->is_training() != pass.training) module_->train(pass.training);
  BuffersStay stay;
  for (std::size_t unit = range.first; pass.again && unit < range.last; ++unit) stay.add(*module_, units_[unit]);
  for (std::size_t unit = range.first; unit < range.last; ++unit) {
    pass.call(&UnitHooks::before_forward, unit);
    if (trace) value = value.detach().requires_grad_(value.is_floating_point() && (unit > 0 || pass.input_gradients));
    const at::Tensor input = value;
    value = forwards_[unit](input);
    if (trace) trace->saved[unit] = {input, value};
    pass.call(&UnitHooks::after_forward, unit);
  }
  return {value.detach()};
}

void ModuleModel::add_gradients(std::size_t unit, const Tensors& gradients, const Pass& pass) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor place = arena_.gradient(units_[unit].first_entry + i);
    const bool used = gradients[i].defined();
    if (used && gradients[i].layout() != at::kStrided) deliver(place, gradients[i].to_dense(), pass);
    else if (used) deliver(place, gradients[i], pass);
    else if (!pass.accumulate) place.zero_();  // a weight that this pass does not use
  }
}

Tensors ModuleModel::back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted,
                          const GradientReady& ready) {
  trace.use_up(range);
  at::Tensor gradient = gradients.at(0);
  for (std::size_t unit = range.last; unit-- > range.first;) {
    pass.call(&UnitHooks::before_backward, unit);
    const Tensors saved = std::exchange(trace.saved[unit], {});
    const bool wants_input = saved[0].requires_grad() && (unit > range.first || wanted.inputs);
    if (unit == 0 && wanted.inputs && saved[0].is_floating_point() && !wants_input)
      throw ConfigError("the forward pass kept nothing for the gradient of the model's input; set Pass::input_gradients for both passes");
    std::vector<at::Tensor> leaves;
    if (wanted.weights) leaves = weights_of(unit);
    const std::size_t weights = leaves.size();
    if (wants_input) leaves.push_back(saved[0]);
    Tensors made;
    if (!leaves.empty() && saved[1].requires_grad() && gradient.defined())  // undefined: nothing after it depends on this unit
      made = torch::autograd::grad({saved[1]}, leaves, {gradient}, /*retain_graph=*/!wanted.weights, /*create_graph=*/false,
                                   /*allow_unused=*/true);
    made.resize(leaves.size());
    if (wanted.weights) add_gradients(unit, {made.begin(), made.begin() + static_cast<std::ptrdiff_t>(weights)}, pass);
    else
      trace.later[unit].push_back([this, unit, output = saved[1], gradient](const Pass& then) {
        const std::vector<at::Tensor> own = weights_of(unit);
        if (own.empty()) return;
        add_gradients(unit,
                      output.requires_grad() && gradient.defined() ? torch::autograd::grad({output}, own, {gradient}, false, false, true)
                                                                   : Tensors(own.size()),
                      then);
      });
    gradient = wants_input ? made.back() : at::Tensor();
    if (wanted.weights && ready && weights > 0) ready(units_[unit].first_entry, units_[unit].last_entry);
    pass.call(&UnitHooks::after_backward, unit);
  }
  return {gradient};
}

void ModuleModel::weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) {
  for (std::size_t unit = range.last; unit-- > range.first;) {
    for (const PutOff& make : std::exchange(trace.later.at(unit), {})) make(pass);
    if (ready && units_[unit].first_entry < units_[unit].last_entry) ready(units_[unit].first_entry, units_[unit].last_entry);
  }
}

}  // namespace paceline::nn
