// A user's torch::nn::Module as a Model: passes go through autograd, one unit after the other.
//
// The module's parameters move into an arena (tensor::adopt), and its buffers of the same type, the running statistics of its norms, into
// another. Frozen parameters and other buffers stay where they are: they are not trained, but they are saved, and workers start with the
// same values. A module is one unit; a torch::nn::Sequential is one unit per child (a child that works in place, like ReLU(inplace),
// belongs to the child before it). For any other module the user may list blocks, in the order of execution; each is a function from one
// tensor to one tensor that does not modify its input (model_of() calls the module's blocks() for them).
//
// A rank of a pipeline keeps the weights and buffers of its own units and frees the memory of the others (keep()).
//
// Limits: weights are used in their own type (the optimizers of Updater only accept float32), and random layers draw from LibTorch's
// generator of the device, which all workers share that are threads of one process.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <concepts>
#include <memory>
#include <mutex>
#include <optional>

#include "paceline/nn/model.h"
#include "paceline/nn/synchronised_norms.h"

namespace paceline::nn {

class ModuleModel : public Model {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;

  struct Block {
    std::string name;  // of the child, as in the names of its parameters
    Forward forward;
  };

  /// One unit: the whole module, computed by `forward`.
  ModuleModel(std::shared_ptr<torch::nn::Module> module, Forward forward, tensor::Allocate allocate = tensor::allocate_pages);
  /// ConfigError if a parameter belongs to no block, to two of them, is shared by two, or is not in the order of the blocks.
  ModuleModel(std::shared_ptr<torch::nn::Module> module, std::vector<Block> blocks, tensor::Allocate allocate = tensor::allocate_pages);
  explicit ModuleModel(const torch::nn::Sequential& children, tensor::Allocate allocate = tensor::allocate_pages);

  using Model::back;
  using Model::run;
  Tensors run(Units range, Tensors inputs, const Pass& pass, Trace* trace) override;
  Tensors back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted, const GradientReady& ready) override;
  void weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) override;

  void refresh() override {}
  void take_back() override;

  /// Restricts the model to these units, the stage of a pipeline; the others can no longer be computed. The arenas are created again.
  void keep(const std::vector<Units>& held);

  std::shared_ptr<Model> another() const override;
  /// Sets how another() creates a model.
  void made_by(std::function<std::shared_ptr<Model>()> make) { make_ = std::move(make); }
  std::vector<Part> parts() const override;  ///< the units
  void walk(const at::Tensor& input, const Pass& pass, const Visit& visit) override;

  const std::vector<Unit>& units() const override { return units_; }
  tensor::Arena& arena() override { return arena_; }
  tensor::Arena& statistics() override { return statistics_; }
  std::vector<Untrained> untrained() const override;
  double statistics_momentum(std::size_t entry) const override { return momenta_.at(entry); }
  const c10::Device& device() const override { return device_; }
  tensor::Precision precision() const override { return tensor::Precision::fp32; }
  bool uses_chance() const override { return true; }  // it cannot be known
  bool takes_masks() const override { return false; }
  bool recordable() const override { return false; }  // autograd has its own threads and memory
  torch::nn::Module& module() { return *module_; }

 private:
  void assign_entries();
  void refuse_shared_weights() const;
  bool holds(const std::string& name) const;
  void add_gradients(std::size_t unit, const Tensors& gradients, const Pass& pass);
  std::vector<at::Tensor> weights_of(std::size_t unit) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Forward> forwards_;  // by unit
  std::vector<Unit> units_;
  std::vector<Units> held_;  // empty: all
  tensor::Allocate allocate_;
  tensor::Arena arena_, statistics_;
  std::vector<at::Tensor> weights_, buffers_;  // by entry
  std::vector<double> momenta_;
  std::optional<SynchronisedNorms> norms_;  // while passes sum over workers
  c10::Device device_;
  std::function<std::shared_ptr<Model>()> make_;
};

/// Where the memory of a model lies.
struct ModelStorage {
  c10::Device device{c10::kCPU};
  tensor::Allocate allocate = tensor::allocate_pages;
};
using MakeModel = std::function<std::shared_ptr<Model>(const ModelStorage&)>;

/// A module that lists its blocks: pipelines are cut between them; ZeRO 3 and recomputation handle them one by one.
template <class Impl>
concept ListsBlocks = requires(Impl& module) {
  { module.blocks() } -> std::convertible_to<std::vector<ModuleModel::Block>>;
};

/// A module with blocks(), a unit each, or with forward(at::Tensor), as one unit: model_of(net) of a `Net net`, or of a
/// std::shared_ptr<NetImpl>.
template <class Impl>
std::unique_ptr<ModuleModel> model_of(const std::shared_ptr<Impl>& module, tensor::Allocate allocate = tensor::allocate_pages) {
  if constexpr (ListsBlocks<Impl>) return std::make_unique<ModuleModel>(module, module->blocks(), std::move(allocate));
  else
    return std::make_unique<ModuleModel>(
        module, [module = module.get()](const at::Tensor& input) { return module->forward(input); }, std::move(allocate));
}
template <class Impl>
std::unique_ptr<ModuleModel> model_of(const torch::nn::ModuleHolder<Impl>& module, tensor::Allocate allocate = tensor::allocate_pages) {
  return model_of(module.ptr(), std::move(allocate));
}
/// A sequence, with one unit per child.
inline std::unique_ptr<ModuleModel> model_of(const torch::nn::Sequential& module, tensor::Allocate allocate = tensor::allocate_pages) {
  return std::make_unique<ModuleModel>(module, std::move(allocate));
}

/// Held while a user's module is made. Its weights come from LibTorch's generator, which belongs to the process: a thread that seeds it or
/// draws from it at the same time would change them.
std::unique_lock<std::recursive_mutex> hold_generator();

/// Models from a function that creates a module: models_of([] { return Net(10); }).
template <class MakeModule>
MakeModel models_of(MakeModule make) {
  return [make](const ModelStorage& storage) -> std::shared_ptr<Model> {
    const auto alone = hold_generator();
    auto module = make();
    module->to(storage.device);
    std::shared_ptr<ModuleModel> model = model_of(module, storage.allocate);
    model->made_by([make, device = storage.device] { return models_of(make)({.device = device}); });
    return model;
  };
}

}  // namespace paceline::nn
