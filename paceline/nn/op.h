// One kind of layer in LibTorch, with an explicit forward and backward pass.
//
// The backward pass is explicit, and not left to autograd, for four reasons: a weight's gradient is written directly into the arena,
// with no zeroing before and no addition after; the moment at which a gradient is complete is known without hooks; a pass runs in the
// thread that calls it, on CUDA too, so that workers that share a GPU do not queue for one engine thread; and strategies that act
// between layers (pipelines, ZeRO 3) need no hooks. tests/nn checks every kind against LibTorch's modules and finite differences.
//
// An Op has no state of its own beyond its settings: what backward needs is in `saved`, so several passes may be in flight.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "paceline/base/random.h"
#include "paceline/graph/graph.h"
#include "paceline/nn/masks.h"
#include "paceline/tensor/batched_copy.h"

namespace paceline::nn {

using Tensors = std::vector<at::Tensor>;

/// A layer's tensors: values in the precision of the pass, gradients in the arena's.
struct Weights {
  Tensors values, gradients, statistics;
};

struct Pass;

/// Computes the gradient of a weight that was put off.
using PutOff = std::function<void(const Pass&)>;

/// Called around a unit of the model, with its index.
struct UnitHooks {
  using Hook = std::function<void(std::size_t)>;
  Hook before_forward, after_forward, before_backward, after_backward;
};

/// A data-parallel worker's share of a micro-batch.
struct Share {
  std::int64_t samples = 0;
  std::uint64_t chance = 0;  // as Pass::chance of that worker
};

/// The settings of a pass.
struct Pass {
  bool training = true;
  bool accumulate = false;                            // add to the gradients instead of overwriting them
  bool input_gradients = false;                       // back() will be asked for those of the model's own input (Wanted::inputs)
  bool again = false;                                 // recomputation: running statistics stay unchanged
  Masks* masks = nullptr;                             // of dropout; null: LibTorch's generator of the device draws them
  std::uint64_t chance = 0;                           // of this micro-batch: the seed of every layer's masks follows from it
  std::vector<tensor::BatchedCopy>* later = nullptr;  // collects gradients that are copied to the arena together; null: each at once
  bool table_begun = false;                           // the gradient of an embedding's table already has the part of the tied layer
  std::vector<PutOff>* put_off = nullptr;  // collects the computations of weights' gradients for later; null: they are made at once
  const UnitHooks* hooks = nullptr;
  std::vector<Share> shares = {};                     // by worker, for layers in which they exchange samples; empty: not known
  double weight = 0;                                  // weight of one target's loss in the gradients, for losses that layers add
  std::function<void(at::Tensor&)> sum_over_workers;  // for batch norms over all workers' samples; empty: only their own

  void call(UnitHooks::Hook UnitHooks::*hook, std::size_t unit) const {
    if (hooks && hooks->*hook) (hooks->*hook)(unit);
  }
};

/// The seed of a stream derived from another: of a micro-batch from a step, of a layer from a micro-batch.
inline std::uint64_t chance_of(std::uint64_t seed, std::uint64_t index) { return RandomStream(seed, Purpose::dropout, index).next_u64(); }

class Op {
 public:
  virtual ~Op() = default;
  virtual at::Tensor forward(const Tensors& inputs, const Weights& weights, const Pass& pass, Tensors& saved) const = 0;
  /// Writes the weights' gradients and returns those of the inputs; if `wants_input` is false, the result may be empty.
  virtual Tensors backward(const at::Tensor& gradient, const Weights& weights, const Pass& pass, const Tensors& saved,
                           bool wants_input) const = 0;
  /// The same with `onto` added to the gradients of the inputs, in the same pass over memory if the kind supports it. For ops with one
  /// input, or that add their inputs.
  virtual Tensors backward_onto(const at::Tensor& gradient, const at::Tensor& onto, const Weights& weights, const Pass& pass,
                                const Tensors& saved) const;
};

/// One row per kind, in ops/registry.cpp.
struct OpKind {
  graph::Kind kind;
  /// `in_place`: the layer may overwrite its first input.
  std::unique_ptr<Op> (*make)(const graph::Layer& layer, bool in_place);
  bool can_overwrite_input = false;
  bool output_may_be_overwritten = false;  // by the next layer: backward does not need it again, and no other tensor shares it
};

const OpKind& op_kind(graph::Kind kind);

/// Computes gradients of weights with make(pass), now or when they are needed.
template <class Make>
void make_weight_gradients(const Pass& pass, Make make) {
  if (pass.put_off) pass.put_off->push_back(std::move(make));
  else make(pass);
}

/// Stores a weight's gradient.
inline void deliver(const at::Tensor& place, const at::Tensor& gradient, const Pass& pass) {
  if (pass.later) pass.later->push_back({place, gradient});
  else if (pass.accumulate) place.add_(gradient);
  else place.copy_(gradient);
}

}  // namespace paceline::nn
