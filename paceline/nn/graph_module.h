// A LibTorch module made from a graph: parameters under PyTorch's names, in an arena, and a pass that is written out layer by layer.
//
// Two ways in, one implementation: forward() is an ordinary differentiable function for a user's own loop; run() and back() are the
// explicit halves that the strategies use, which never build an autograd graph.
#pragma once

#include <torch/nn/module.h>

#include <functional>

#include "paceline/graph/graph.h"
#include "paceline/nn/op.h"
#include "paceline/tensor/arena.h"
#include "paceline/tensor/device.h"

namespace paceline::nn {

/// What a forward pass leaves for its backward pass.
struct Trace {
  std::vector<Tensors> saved;  // by layer
};

/// Called when the gradients of arena entries [first, last) are complete, once for each entry; the entries of the last layers come first.
using GradientReady = std::function<void(std::size_t first, std::size_t last)>;
/// Called with each layer's output in the forward pass.
using Inspect = std::function<void(const graph::Layer&, const at::Tensor&)>;

class GraphModule : public torch::nn::Module {
 public:
  struct Options {
    c10::Device device{c10::kCPU};
    tensor::Precision precision = tensor::Precision::fp32;
    c10::ScalarType dtype = c10::kFloat;  // of the arena; double for checks against finite differences
    std::uint64_t seed = 0;
    bool fuse_norms = true;  // on a GPU; not where a pass sums over workers
    tensor::Allocate allocate = tensor::allocate_pages;
  };

  GraphModule(graph::Graph graph, const Options& options);

  /// Logits of a batch, differentiable. What torch::load() brought, and what an optimizer changed, counts from here on. backward() adds to
  /// the .grad of parameters that are not frozen; torch::autograd::grad() and hooks see the input alone.
  at::Tensor forward(const at::Tensor& input);

  /// Forward pass without autograd. `trace` null: keep nothing (evaluation).
  at::Tensor run(const at::Tensor& input, const Pass& pass, Trace* trace, const Inspect& inspect = nullptr);
  /// Backward pass of `trace`, which it consumes; fills the arena's gradients. Returns the input's gradient where it is wanted.
  at::Tensor back(const at::Tensor& logits_gradient, const Pass& pass, Trace& trace, const GradientReady& ready = nullptr,
                  bool wants_input = false);

  /// Tells the module that the arena's parameters changed: refreshes the copies in lower precision.
  void refresh();
  /// Brings what torch::load() put elsewhere back into the arenas.
  void take_back();
  /// Points the parameters' .grad back into the arena, where they lost it.
  void restore_gradients();

  const graph::Graph& graph() const { return graph_; }
  const Options& options() const { return options_; }
  tensor::Arena& arena() { return arena_; }
  tensor::Arena& statistics() { return statistics_; }  // running means and variances
  const c10::Device& device() const { return device_; }
  c10::ScalarType compute_type() const { return compute_; }  // of activations
  bool uses_chance() const { return uses_chance_; }          // has dropout

 private:
  struct Node {
    std::unique_ptr<Op> op;   // null: a later node does this layer's work
    std::vector<int> inputs;  // layers; those of the graph, or of what was fused into this node
    Weights weights;
    std::size_t first_entry = 0, last_entry = 0;  // in the arena
    bool wants_input = true;                      // some parameter or wish lies before it
  };

  void build_nodes();
  void fuse_norms();
  void register_names();
  std::vector<bool> overwritable_inputs() const;

  graph::Graph graph_;
  Options options_;
  c10::Device device_;
  c10::ScalarType compute_;  // of activations and of the products
  bool channels_last_, fuse_norms_;
  tensor::Arena arena_, statistics_;
  at::Tensor compute_copy_;          // the arena in compute_, where that differs
  std::vector<at::Tensor> leaves_;   // by arena entry: the parameters that users and their optimizers hold
  std::vector<at::Tensor> running_;  // the same of the statistics
  std::vector<Node> nodes_;          // by layer
  std::vector<int> last_use_;        // by layer: the last layer that reads its output
  bool uses_chance_ = false;
};

}  // namespace paceline::nn
