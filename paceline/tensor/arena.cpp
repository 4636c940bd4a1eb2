#include "paceline/tensor/arena.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/error.h"

namespace paceline::tensor {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (std::int64_t dim : shape) count *= dim;
  return count;
}

/// Whether a parameter, or its gradient, is at its place in the arena.
bool in_place(const Arena& arena, std::size_t index, const at::Tensor& flat, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) return false;  // a sparse gradient of an embedding
  const std::size_t offset = static_cast<std::size_t>(arena.entries()[index].offset) * flat.element_size();
  return tensor.data_ptr() == static_cast<const char*>(flat.data_ptr()) + offset;
}

}  // namespace

struct Adopted {
  /// Called before autograd adds a gradient, since it does not report the gradient of a parameter that was moved.
  void gradient_comes(std::size_t index) const {
    const at::Tensor &parameter = parameters[index], &flat = arena.parameters();
    if (!superseded && (parameter.dtype() != flat.dtype() || parameter.device() != flat.device())) take_back(arena, parameters);
  }

  void gradient_added(std::size_t index) const {
    if (superseded && added && !successor_listens)
      throw ConfigError("the module was adopted again, so its gradients no longer reach its wrapper; adopt a module before wrapping it");
    if (superseded) return;
    if (!in_place(arena, index, arena.parameters(), parameters[index])) take_back(arena, parameters);
    // All of them: zero_grad() drops all at once, and a gradient that this pass does not touch would keep its old values.
    if (!in_place(arena, index, arena.gradients(), parameters[index].grad())) restore_gradients(arena, parameters);
    if (added) added(index);
  }

  Arena arena;
  std::vector<at::Tensor> parameters;  // by entry
  GradientAdded added;
  // The node that adds gradients to a parameter lives only as long as something references it.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  bool superseded = false, successor_listens = false;  // another arena has the module now
};

namespace {

/// Runs after autograd has added a parameter's gradient. It holds a weak reference to what dies with the arena.
class AfterGradient final : public torch::autograd::FunctionPostHook {
 public:
  AfterGradient(std::weak_ptr<Adopted> adopted, std::size_t index) : adopted_(std::move(adopted)), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) override {
    if (const auto adopted = adopted_.lock()) adopted->gradient_added(index_);
    return outputs;
  }
  void supersede(bool successor_listens) const {
    if (const auto adopted = adopted_.lock()) adopted->superseded = true, adopted->successor_listens = successor_listens;
  }

 private:
  std::weak_ptr<Adopted> adopted_;
  std::size_t index_;
};

}  // namespace

at::Tensor allocate_pages(std::int64_t elements, const at::TensorOptions& options) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  if (bytes < kHugePage) return at::zeros({elements}, options);
  if (!options.device().is_cpu()) {
    const at::Tensor pages = DevicePages::allocate(elements, options);
    return pages.defined() ? pages : at::zeros({elements}, options);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw ConfigError(fmt::format("not enough memory for {} MB of parameters; choose a smaller model", bytes >> 20));
  madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: an update streams through all of it, and huge pages need few page-table entries
  return at::from_blob(
      memory, {elements}, [bytes](void* pages) { munmap(pages, bytes); }, options);
}

std::vector<std::int64_t> Entry::whole() const {
  std::vector<std::int64_t> result = shape;
  if (slice) result.at(static_cast<std::size_t>(slice->dim)) = slice->all;
  return result;
}

Arena::Arena(const std::vector<Spec>& specs, const Options& options) : channels_last_(options.channels_last) {
  entries_.reserve(specs.size());
  for (const Spec& spec : specs) {
    const std::int64_t count = product(spec.shape);
    entries_.push_back(
        {.name = spec.name, .shape = spec.shape, .offset = length_, .count = count, .decay = spec.decay, .slice = spec.slice});
    length_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  parameters_ = options.allocate(length_, options.tensor);
  const c10::ScalarType of_gradients = options.gradient_dtype.value_or(parameters_.scalar_type());
  if (options.gradients) gradients_ = options.allocate(length_, options.tensor.dtype(of_gradients));
  for (Held& role : roles_) role.owners = Owners(length_);
  Held &parameter = roles_[static_cast<std::size_t>(Role::parameter)], &gradient = roles_[static_cast<std::size_t>(Role::gradient)];
  parameter.dtype = parameters_.scalar_type(), gradient.dtype = of_gradients;  // masters and moments are fp32 whatever these are
  parameter.backing = back(Role::parameter, parameters_);
  if (options.gradients) gradient.backing = back(Role::gradient, gradients_);
}

void Arena::set_unit(std::size_t unit, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) entries_.at(i).unit = unit;
}

OwnedRange Arena::range_of(std::size_t first, std::size_t last) const {
  if (first == last) return {};
  return {entries_.at(first).offset, last == entries_.size() ? length_ : entries_.at(last).offset};
}

std::vector<OwnedRange> Arena::ranges(bool are_private, std::size_t first, std::size_t last) const {
  std::vector<OwnedRange> found;
  for (std::size_t i = first; i < last; ++i) {
    if (entries_[i].is_private() != are_private) continue;
    const OwnedRange range = range_of(i, i + 1);
    if (!found.empty() && found.back().end == range.begin) found.back().end = range.end;
    else found.push_back(range);
  }
  return found;
}

bool Arena::has_private() const { return std::ranges::any_of(entries_, &Entry::is_private); }

void Arena::set_owners(Role role, Owners owners) {
  ensure(owners.length() == length_, "every element of an arena has an owner");
  roles_[static_cast<std::size_t>(role)].owners = std::move(owners);
}

at::Tensor Arena::allocate(Role role, const Shard& shard, Place place) const {
  const at::TensorOptions here = parameters_.options().dtype(dtype(role)), options = place == Place::host ? here.device(at::kCPU) : here;
  const at::Tensor memory = options.device() == here.device() ? allocate_pages(shard.length(), options)
                                                              : at::zeros({shard.length()}, options.pinned_memory(true));
  const auto bytes = static_cast<std::int64_t>(memory.nbytes());
  const std::shared_ptr<Ledger>& counts = place == Place::host ? host_ledger_ : ledger_;
  counts->add(role, bytes);
  const auto counted = [memory, role, bytes, ledger = counts](void*) { ledger->add(role, -bytes); };
  return at::from_blob(memory.data_ptr(), memory.sizes(), counted, memory.options());
}

std::int64_t Arena::count() const {
  std::int64_t count = 0;
  for (const Entry& entry : entries_) count += entry.count;
  return count;
}

at::Tensor Arena::view(const at::Tensor& flat, std::size_t index) const {
  const Entry& entry = entries_.at(index);
  return view_rows(flat.narrow(0, entry.offset, entry.count), index);
}

at::Tensor Arena::view_rows(const at::Tensor& flat, std::size_t index) const {
  const Entry& entry = entries_.at(index);
  if (entry.shape.empty()) return flat.view(entry.shape);
  std::vector<std::int64_t> s = entry.shape;
  if (entry.row() > 0) s[0] = flat.numel() / entry.row();
  if (!channels_last_ || s.size() != 4) return flat.view(s);
  return flat.view({s[0], s[2], s[3], s[1]}).permute({0, 3, 1, 2});  // {out, in, h, w} on top of memory {out, h, w, in}
}

std::vector<std::int64_t> Arena::memory_order(std::size_t index) const {
  const std::size_t dims = entries_.at(index).shape.size();
  if (channels_last_ && dims == 4) return {0, 2, 3, 1};
  std::vector<std::int64_t> order(dims);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<Listed> Arena::listing() const {
  std::vector<Listed> listing = listing_;
  for (std::size_t i = 0; listing_.empty() && i < entries_.size(); ++i) listing.push_back({entries_[i].name, entries_[i].whole(), i});
  return listing;
}

at::Tensor Arena::gradient_leaf(std::size_t index) const {
  const at::Tensor place = gradient(index);
  return at::empty({0}, place.options()).set_(place.storage(), place.storage_offset(), place.sizes(), place.strides());
}

void Arena::take_back() const {
  if (!adopted_) return;
  if (adopted_->superseded)
    throw ConfigError(
        "the module was adopted again, so this arena no longer has its parameters; use the later arena, or DataParallel's arena()");
  tensor::take_back(*this, adopted_->parameters);
  restore_gradients(*this, adopted_->parameters);
}

void take_back(const Arena& arena, std::span<const at::Tensor> parameters) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (in_place(arena, i, arena.parameters(), parameter)) continue;
    const at::Tensor home = arena.parameter(i);
    if (parameter.sizes() != home.sizes() || parameter.dtype() != home.dtype() || parameter.device() != home.device())
      throw ConfigError(fmt::format(
          "'{}' of the module was {} on {} when the module was made or adopted, but is now {} on {}; move or convert a module before that",
          arena.entries()[i].name, c10::toString(home.scalar_type()), home.device().str(), c10::toString(parameter.scalar_type()),
          parameter.device().str()));
    home.copy_(parameter);
    parameter.set_data(home);
  }
}

void restore_gradients(const Arena& arena, std::span<const at::Tensor> parameters) {
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) {  // frozen since
      arena.gradient(i).zero_();
      parameters[i].mutable_grad() = at::Tensor();
      continue;
    }
    const at::Tensor gradient = parameters[i].grad();
    if (in_place(arena, i, arena.gradients(), gradient)) continue;
    if (gradient.defined()) arena.gradient(i).copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
    else arena.gradient(i).zero_();
    parameters[i].mutable_grad() = arena.gradient_leaf(i);
  }
}

Arena adopt(torch::nn::Module& module, Allocate allocate, GradientAdded added, const std::function<bool(const std::string&)>& takes) {
  std::vector<Spec> specs;
  std::vector<at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;  // frozen: not trained
    if (takes && !takes(item.key())) continue;
    if (std::ranges::any_of(tensors, [&](const at::Tensor& seen) { return seen.is_same(item.value()); })) continue;  // shared: one entry
    specs.push_back({item.key(), item.value().sizes().vec(), item.value().dim() >= 2});
    tensors.push_back(item.value());
    if (tensors.front().options().dtype() != item.value().dtype() || tensors.front().device() != item.value().device())
      throw ConfigError(fmt::format("parameter '{}' differs in type or device from '{}'; move the whole module with module->to(…) first",
                                    item.key(), specs.front().name));
  }
  if (tensors.empty()) throw ConfigError("the module has no trainable parameter to adopt");
  Arena::Options options;
  options.tensor = at::TensorOptions().dtype(tensors.front().dtype()).device(tensors.front().device());
  options.allocate = std::move(allocate);
  Arena arena(specs, options);
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor home = arena.parameter(i);
    home.copy_(tensors[i]);
    tensors[i].set_data(home);
    tensors[i].mutable_grad() = arena.gradient_leaf(i);
  }
  const auto adopted = std::make_shared<Adopted>(Adopted{arena, tensors, std::move(added), {}});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    adopted->accumulators.push_back(torch::autograd::impl::grad_accumulator(tensors[i]));
    for (const auto& hook : adopted->accumulators.back()->post_hooks())
      if (const auto* earlier = dynamic_cast<const AfterGradient*>(hook.get())) earlier->supersede(adopted->added != nullptr);
    adopted->accumulators.back()->add_post_hook(std::make_unique<AfterGradient>(adopted, i));
    tensors[i].register_hook([weak = std::weak_ptr<Adopted>(adopted), i](const at::Tensor&) {
      if (const auto known = weak.lock()) known->gradient_comes(i);
    });
  }
  arena.adopted_ = adopted;
  return arena;
}

}  // namespace paceline::tensor
