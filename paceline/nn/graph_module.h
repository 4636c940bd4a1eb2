// A LibTorch module made from a graph: parameters under PyTorch's names, in an arena, and explicit passes, layer by layer.
//
// Two interfaces to one implementation: forward() is an ordinary differentiable function for a user's own loop; run() and back() are the
// explicit halves that the strategies use, which never build an autograd graph.
#pragma once

#include <torch/nn/module.h>

#include <functional>

#include "paceline/graph/graph.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/nn/init.h"
#include "paceline/nn/model.h"
#include "paceline/nn/tensor_axis.h"
#include "paceline/tensor/device.h"

namespace paceline::nn {

class GraphModule : public torch::nn::Module, public Model {
 public:
  struct Options {
    c10::Device device{c10::kCPU};
    tensor::Precision precision = tensor::Precision::fp32;
    c10::ScalarType dtype = c10::kFloat;  // of the arena: fp16 and bf16 are computed in fp32; double for checks by finite differences
    std::optional<c10::ScalarType> gradient_dtype = {};  // of the arena's gradients; nothing: dtype
    std::uint64_t seed = 0;
    bool fuse_norms = true;        // on a GPU; not if a pass sums over workers
    std::vector<Units> held = {};  // the units that it holds and computes, for a pipeline's stage; empty: all
    tensor::Allocate allocate = tensor::allocate_pages;
    comm::Communicator* tensor = nullptr;           // the ranks that share its layers; must outlive it; null: none
    bool sequence = false;                          // they also share the positions between those layers
    comm::Communicator* data = nullptr;             // the ranks over which some layers are spread, each with its own samples; null: none
    std::optional<graph::TensorSplit> hybrid = {};  // how they share layers (graph/hybrid.h)
    const Clock* clock = nullptr;                   // measures waits for other ranks in traffic(); must outlive it; null: not measured
  };

  /// Collective over the ranks of Options::data.
  GraphModule(graph::Graph graph, const Options& options);

  /// Logits of a batch, differentiable. Uses the current parameters, also after torch::load() or an optimizer has changed them. backward()
  /// adds to the .grad of parameters that are not frozen; torch::autograd::grad() and hooks only see the input.
  at::Tensor forward(const at::Tensor& input);

  using Model::back;
  using Model::run;
  Tensors run(Units range, Tensors inputs, const Pass& pass, Trace* trace) override {
    return run(range, std::move(inputs), pass, trace, nullptr);
  }
  void walk(const at::Tensor& input, const Pass& pass, const Visit& visit) override { run(all(), {input}, pass, nullptr, visit); }
  std::vector<Part> parts() const override;  ///< the layers
  std::shared_ptr<Model> another() const override;
  Tensors back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted, const GradientReady& ready) override;
  void weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) override;
  void sit_out_back(Units range, const Pass& pass, const GradientReady& ready) override;

  void refresh() override;
  void units_came(Units units) override;
  void units_go(Units units) override;
  void take_back() override;
  /// Points each parameter's .grad back into the arena if it no longer does.
  void restore_gradients();

  const graph::Graph& graph() const { return graph_; }
  const Options& options() const { return options_; }
  /// If the module shares its layers and splits_logits() is true, the output is this rank's part of the logits.
  const graph::TensorSplit& split() const { return split_; }
  const std::vector<Unit>& units() const override { return units_; }
  tensor::Arena& arena() override { return arena_; }
  tensor::Arena& statistics() override { return statistics_; }
  double statistics_momentum(std::size_t entry) const override { return momenta_.at(entry); }
  std::optional<TiedWeight> tied() const override;
  std::vector<graph::Alias> aliases() const override { return graph_.aliases(); }
  const c10::Device& device() const override { return device_; }
  tensor::Precision precision() const override { return options_.precision; }
  bool uses_chance() const override { return uses_chance_; }
  bool takes_masks() const override { return true; }
  bool recordable() const override { return !spread_; }
  bool exchanges_samples() const override { return spread_ != nullptr; }
  Traffic traffic() const override;

 private:
  struct Node {
    std::unique_ptr<Op> op;   // null: a later node does this layer's work, or another rank
    std::vector<int> inputs;  // layers: those of the graph, or of what was fused into this node
    Weights weights;
    std::size_t first_entry = 0, last_entry = 0;  // in the arena
    bool wants_input = true;                      // the gradient of its input is needed
    bool draws = false;                           // has dropout
    int sum = -1;                                 // the earlier layer that was fused into it, whose output it saves first; -1: none
    bool exchanges = false;                       // communicates with the others of Options::data, even without samples of its own
  };

  Tensors run(Units range, Tensors inputs, const Pass& pass, Trace* trace, const Visit& visit);

  std::vector<Share> ask_shares(std::int64_t samples) const;
  void skip_back(const Node& node, const Pass& pass, Tensors& inputs) const;
  static at::Tensor take_others(const Node& node, Tensors& gradients);
  bool holds(std::size_t unit) const;
  std::size_t unit_of(int layer) const;
  bool holds_tied() const;  // both layers of a tied weight
  std::vector<HeldParameter> held_parameters() const;
  void list_names();
  void assign_entries();
  void build_nodes();
  void fuse_norms();
  void fuse_rows();
  void tie();
  void register_names();
  std::vector<bool> overwritable_inputs() const;

  std::unique_ptr<Op> make_op(std::size_t layer, bool in_place) const;

  graph::Graph graph_;
  Options options_;
  graph::TensorSplit split_;
  std::unique_ptr<comm::Communicator>
      spread_;                                // a copy of Options::data for passes, because gradients are sent at the same time; null: none
  std::unique_ptr<TensorAxis> axis_;          // null: its layers are not shared
  std::unique_ptr<TensorAxis> experts_axis_;  // the ranks that hold experts; null: all experts are here
  c10::Device device_;
  c10::ScalarType compute_;  // of activations and of the products
  bool channels_last_, fuse_norms_;
  std::vector<Unit> units_;
  std::vector<std::size_t> begins_;         // by unit, and one past the last: its first layer
  std::vector<std::vector<int>> crossing_;  // by unit, and one past the last: the earlier layers whose outputs it and later ones read
  std::vector<HeldParameter> held_;         // in the order of the network
  tensor::Arena arena_, statistics_;        // of them
  at::Tensor compute_copy_;                 // the arena in type compute_, if that differs
  std::shared_ptr<tensor::Backing> copy_backing_;
  std::shared_ptr<tensor::Backing> table_copy_, table_gradient_;  // of a table that another stage trains
  std::vector<at::Tensor> leaves_;                                // by arena entry: the parameters that the user and optimizers hold
  std::vector<at::Tensor> running_;                               // the same for the statistics
  std::vector<Node> nodes_;                                       // by layer
  std::vector<double> momenta_;                                   // by entry of the statistics
  std::vector<int> last_use_;                                     // by layer: the last layer that reads its output
  bool uses_chance_ = false;
};

}  // namespace paceline::nn
