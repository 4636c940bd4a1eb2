// What a forward pass keeps for its backward pass, counted from a network's description: which tensors each kind of layer saves
// (nn/ops), each storage once. tests/memory holds it against what the modules really save.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/graph/units.h"

namespace paceline::memory {

/// What the kernels of a device need beyond their inputs and outputs. LibTorch decides that, so the caller passes it in.
struct Kernels {
  bool columns = false;    // a convolution first writes out what each of its positions sees, of all samples
  int block = 0;           // channels that a convolution takes at a time, from copies of its own in that order; 0: it makes no copies
  bool attention = false;  // one kernel makes attention's gradients, of queries, keys and values apart, which are then put together
  bool loss = false;       // one kernel scores the logits where they lie

  auto operator<=>(const Kernels&) const = default;
};

/// How a pass is made.
struct PassSize {
  std::int64_t samples = 1;  // of a micro-batch
  std::int64_t element = 4;  // bytes of an activation: 4, or 2 in bf16
  bool casts = false;        // gradients of weights are stored in another type than they are made in
  bool split_loss = false;   // the ranks of the tensor axis share the classes
  Kernels kernels = {};

  auto operator<=>(const PassSize&) const = default;
};

/// Tensors that layers produce or save, for one pass.
class Activations {
 public:
  /// `layers`: up to the logits, as a rank computes them. An attention's `channels` and `positions` are those of the rank's heads, where
  /// they differ from its output's.
  Activations(std::vector<graph::Layer> layers, std::vector<graph::Unit> units, const PassSize& size);

  const std::vector<graph::Unit>& units() const { return units_; }

  /// Saved by units [first, last), each storage once. The batch itself, which the caller holds, does not count.
  std::int64_t saved(std::size_t first, std::size_t last) const;
  /// What goes into a unit; of the first one, nothing, as above.
  std::int64_t input(std::size_t unit) const { return inputs_[unit]; }
  /// Saved by a unit, without what of that goes into it.
  std::int64_t saved_beside_input(std::size_t unit) const { return saved_beside_inputs_[unit]; }
  /// What comes out of the last layer.
  std::int64_t output() const { return bytes_.back(); }
  /// Its gradient, and what the loss needs in fp32: for a chunk of it, or for all of it where it is split.
  std::int64_t loss() const;
  /// The most that is alive at once while a unit goes back, beyond what was saved up to it: gradients between its layers and what the
  /// layers need to make them, less what was saved for layers that are done.
  std::int64_t gradients(std::size_t unit) const { return gradients_[unit]; }

 private:
  std::size_t storage_of(std::size_t layer) const { return storage_[layer]; }
  std::int64_t extra(const graph::Layer& layer) const;
  std::vector<std::size_t> saved_by(std::size_t layer) const;                      // storages
  std::int64_t needed_to_go_back(const graph::Layer& layer, bool of_input) const;  // besides gradients of its inputs and outputs
  std::int64_t needed_by_attention(const graph::Layer& layer) const;
  std::int64_t needed_by_convolution(const graph::Layer& layer, bool of_input) const;
  std::int64_t blocked(const graph::Layer& layer) const;
  std::vector<bool> which_are_trained() const;
  std::int64_t done_with(std::size_t i, std::size_t first) const;
  void count_saved();
  void count_inputs();
  void count_gradients();

  std::vector<graph::Layer> layers_;
  std::vector<graph::Unit> units_;
  PassSize size_;
  std::vector<std::size_t> storage_;  // by layer: whose memory its output lies in
  std::vector<std::int64_t> bytes_;   // by layer: of its output

  // A planner asks for the same units thousands of times.
  std::vector<std::int64_t> inputs_, saved_beside_inputs_, gradients_;  // by unit
  std::vector<std::int64_t> own_{0};                                    // sums over units [0, i) of what each saves by itself
  struct Again {
    std::size_t before = 0, unit = 0;  // both save this storage, and none between them
    std::int64_t bytes = 0;
  };
  std::vector<Again> again_;  // by ascending `unit`
};

/// What is held between the forward and the backward pass of a micro-batch over units [first, last), and the most that is held at any
/// moment of the two; `recompute` is "none", "units" or "all" (nn/recomputing_model.h).
struct PassBytes {
  std::int64_t held = 0, peak = 0;
};
PassBytes pass_bytes(const Activations& activations, std::size_t first, std::size_t last, const std::string& recompute);

}  // namespace paceline::memory
