// What a forward pass keeps for its backward pass, counted from a network's description: which tensors each kind of layer saves (nn/ops),
// each storage once. tests/memory compares the count with what the modules really save.
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
  bool columns = false;  // a convolution first writes out its columns (im2col), for all samples
  int block = 0;         // channels per block of the layout into which a convolution copies its tensors; 0: it makes no copies
  bool attention =
      false;  // one kernel computes attention's gradients of queries, keys and values as separate tensors, which are then concatenated
  bool loss = false;      // one kernel computes the loss from the logits in place
  std::int64_t sums = 0;  // bytes per element that a product of 16-bit matrices holds on top of its result: its sums in fp32

  auto operator<=>(const Kernels&) const = default;
};

/// The settings of a pass.
struct PassSize {
  std::int64_t samples = 1;  // of a micro-batch
  std::int64_t element = 4;  // bytes of an activation: 4, or 2 in bf16
  bool casts = false;        // weight gradients are stored in another type than the one in which they are computed
  bool converts = false;     // the pass makes a copy of the batch, if that has numbers, in the type of its activations
  bool split_loss = false;   // the ranks of the tensor axis share the classes
  Kernels kernels = {};

  auto operator<=>(const PassSize&) const = default;
};

/// Tensors that layers produce or save, for one pass.
class Activations {
 public:
  /// `layers`: up to the logits, as a rank computes them. The `channels` and `positions` of an attention layer are those of the rank's
  /// heads if they differ from those of its output.
  Activations(std::vector<graph::Layer> layers, std::vector<graph::Unit> units, const PassSize& size);

  const std::vector<graph::Unit>& units() const { return units_; }

  /// Bytes saved by units [first, last), counting each storage once. The batch itself is not counted, since the caller holds it; a
  /// converted copy is.
  std::int64_t saved(std::size_t first, std::size_t last) const;
  /// Bytes of a unit's input; 0 for the first unit, whose input is the batch.
  std::int64_t input(std::size_t unit) const { return inputs_[unit]; }
  /// Bytes saved by a unit, without its input.
  std::int64_t saved_beside_input(std::size_t unit) const { return saved_beside_inputs_[unit]; }
  /// Bytes of the last layer's output.
  std::int64_t output() const { return bytes_.back(); }
  /// The gradient of the output, and what the loss needs in fp32: for one chunk, or for the whole output if its classes are split.
  std::int64_t loss() const;
  /// The peak during a unit's backward pass, beyond what was saved up to this unit: gradients between its layers and what the layers need
  /// to compute them, minus what was saved for layers that are done.
  std::int64_t gradients(std::size_t unit) const { return gradients_[unit]; }
  /// The most that a kernel needs during a unit's forward pass, beyond what is saved.
  std::int64_t forward(std::size_t unit) const { return forwards_[unit]; }

 private:
  std::size_t storage_of(std::size_t layer) const { return storage_[layer]; }
  std::int64_t extra(const graph::Layer& layer) const;
  std::vector<std::size_t> saved_by(std::size_t layer) const;                      // storages
  std::int64_t needed_to_go_back(const graph::Layer& layer, bool of_input) const;  // besides gradients of its inputs and outputs
  std::int64_t needed_to_go_forward(std::size_t layer) const;
  std::int64_t needed_by_product(const graph::Layer& layer, bool of_input) const;
  std::int64_t needed_by_attention(const graph::Layer& layer) const;
  std::int64_t sums(std::int64_t elements) const { return size_.element < 4 ? elements * size_.kernels.sums : 0; }
  std::int64_t made_of_weights(std::int64_t elements) const { return sums(elements) + (size_.casts ? elements * size_.element : 0); }
  bool copies_batch() const { return size_.converts && layers_.size() > 1 && layers_[1].kind != graph::Kind::embedding; }
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
  std::vector<std::size_t> storage_;  // by layer: the storage of its output
  std::vector<std::int64_t> bytes_;   // by layer: the size of its output

  // Cached, because a planner asks for the same units thousands of times.
  std::vector<std::int64_t> inputs_, saved_beside_inputs_, gradients_, forwards_;  // by unit
  std::vector<std::int64_t> own_{0};  // sums over units [0, i) of what each unit saves, ignoring shared storages
  struct Again {
    std::size_t before = 0, unit = 0;  // both save this storage, and no unit between them does
    std::int64_t bytes = 0;
  };
  std::vector<Again> again_;  // by ascending `unit`
};

/// `held`: between the forward and the backward pass of a micro-batch over units [first, last). `peak`: the maximum at any moment of the
/// two passes. `recompute` is "none", "units" or "all" (nn/recomputing_model.h).
struct PassBytes {
  std::int64_t held = 0, peak = 0;
};
PassBytes pass_bytes(const Activations& activations, std::size_t first, std::size_t last, const std::string& recompute);

}  // namespace paceline::memory
