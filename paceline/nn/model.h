// What strategies train: an ordered list of units with their parameters in an arena, and a forward and a backward pass over any range of
// them. GraphModule is one, made from a network's description; ModuleModel is another, for any torch::nn::Module.
//
// A pass has no state in the model: everything that backward needs is in the Trace, so several micro-batches may be in flight. The
// gradients of weights can be put off (Wanted::weights = false) and computed later by weight_gradients(), as zero-bubble pipelines
// need.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paceline/graph/stages.h"
#include "paceline/nn/op.h"
#include "paceline/nn/traffic.h"
#include "paceline/tensor/arena.h"
#include "paceline/tensor/device.h"

namespace paceline::nn {

/// Entries [first_entry, last_entry) of the arena are its parameters.
struct Unit {
  std::string name;
  std::size_t first_entry = 0, last_entry = 0;
  std::optional<std::size_t> borrows = {};  // an earlier unit, some of whose parameters it also uses (tied embeddings)
};

/// A weight that two units share, if they are in different stages of a pipeline: the stage of the first unit trains it, and that of the
/// second has a copy, which is in no arena.
struct TiedWeight {
  at::Tensor values, gradient;       // as this stage has them; undefined on the stages in between
  std::optional<std::size_t> entry;  // in the arena, on the stage that trains it
};

using graph::Units;

/// What a forward pass keeps for its backward pass: of one micro-batch, for all its units.
struct Trace {
  /// What a unit, or a segment of units, is recomputed from (recomputing_model.h).
  struct Kept {
    Tensors inputs = {};
    at::Tensor chance = {};  // state of LibTorch's generator before it; undefined if nothing is drawn from it
    std::size_t last = 0;    // the unit after the segment
    bool complete = false;   // nothing is recomputed: all that backward needs is in `saved`
  };

  std::vector<Tensors> saved;              // by layer, or by unit
  std::vector<Kept> kept;                  // by unit; empty: the model recomputes nothing
  std::vector<std::vector<PutOff>> later;  // by unit: gradients of weights that were put off
  std::vector<bool> forward;               // by unit: it went forward, but not yet backward

  /// Prepares a forward pass over `range` of a model with this many units and this many entries of `saved`.
  void begin(std::size_t places, std::size_t units, Units range);
  /// Prepares a backward pass. ConfigError if there was no forward pass.
  void use_up(Units range);
  /// Memory that `saved` and `kept` hold, each storage once. Does not include what autograd keeps for the output of a user's module.
  std::int64_t bytes() const;
};

/// What a backward pass computes.
struct Wanted {
  bool inputs = false;  // the gradients of the inputs of the range's first unit; of the model's own, see Pass::input_gradients
  bool weights = true;  // false: put off until weight_gradients(). Small ones that cost nothing extra (norms) are computed anyway
};

/// Called when the gradients of arena entries [first, last) are complete, once for each entry; the entries of the last units come first.
using GradientReady = std::function<void(std::size_t first, std::size_t last)>;

/// A tensor of a model that lies in no arena.
struct Untrained {
  std::string name;
  at::Tensor tensor;
  bool held = true;  // false: other ranks of a pipeline have it
};

/// A part of the forward pass that a diagnosis can name: a layer of a graph, or a unit. Its weights are entries of the two arenas.
struct Part {
  std::string name;  // "layer 'conv1'"
  std::vector<std::size_t> parameters = {}, statistics = {};
};

/// Called with each part's output in the order of the forward pass.
using Visit = std::function<void(std::size_t part, const at::Tensor& output)>;

class Model {
 public:
  virtual ~Model() = default;

  /// The model that computes, inside all decorators.
  virtual const Model& network() const { return *this; }

  /// Another model of the same kind, with its own weights and memory, for a worker that shares this process. ConfigError if the model
  /// does not know how to make one.
  virtual std::shared_ptr<Model> another() const = 0;

  virtual const std::vector<Unit>& units() const = 0;
  virtual tensor::Arena& arena() = 0;
  virtual tensor::Arena& statistics() = 0;                          ///< running statistics of norms
  virtual double statistics_momentum(std::size_t entry) const = 0;  ///< the weight that a new batch has in that entry of statistics()
  /// What belongs to the model but is not trained: frozen parameters of a user's module, and its buffers that are not running statistics.
  virtual std::vector<Untrained> untrained() const { return {}; }
  /// Empty if no weight is shared with another stage.
  virtual std::optional<TiedWeight> tied() const { return std::nullopt; }
  virtual std::vector<graph::Alias> aliases() const { return {}; }
  virtual const c10::Device& device() const = 0;
  virtual tensor::Precision precision() const = 0;
  virtual bool uses_chance() const = 0;  ///< has dropout
  virtual bool takes_masks() const = 0;  ///< draws the Pass's masks, and nothing from LibTorch's generator
  virtual bool recordable() const = 0;   ///< its passes can be recorded in a CUDA graph
  /// Data-parallel workers exchange samples in the middle of a pass, so all of them make the same number of passes, even without samples.
  /// Pass::shares says who has how many; a forward pass without it asks the others.
  virtual bool exchanges_samples() const { return false; }
  /// Data-parallel workers need each other in a pass, for samples or for parameters: no worker may skip one.
  virtual bool workers_meet() const { return exchanges_samples(); }

  virtual Traffic traffic() const { return {}; }  ///< since it was created

  virtual std::vector<Part> parts() const = 0;
  /// A forward pass that reports the output of every part.
  virtual void walk(const at::Tensor& input, const Pass& pass, const Visit& visit) = 0;

  /// Tells the model that the arena's parameters changed: refreshes copies in lower precision.
  virtual void refresh() = 0;
  /// The parameters of these units were brought into memory, or are released: the same happens to copies of them.
  virtual void units_came(Units) { refresh(); }
  virtual void units_go(Units) {}
  /// Copies tensors that torch::load() has replaced back into the arenas.
  virtual void take_back() = 0;

  /// Forward pass without autograd: `inputs` are those of the range's first unit; the result is the input of the unit after the range, or
  /// the model's output. `trace` null: keep nothing (evaluation).
  virtual Tensors run(Units range, Tensors inputs, const Pass& pass, Trace* trace) = 0;
  /// Backward pass of `trace`, which it consumes, over a range of run(): `gradients` are those of what run() returned. Fills the arena's
  /// gradients, and returns those of the inputs if they are wanted.
  virtual Tensors back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted,
                       const GradientReady& ready) = 0;
  /// The gradients that back() put off.
  virtual void weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) = 0;

  /// Replaces run() and back() for a share without samples. If ranks communicate in a pass, no rank may skip it; gradients that would not
  /// be accumulated become zero. `trained`: the run has a trace.
  virtual void sit_out_run(Units, bool /*trained*/) {}
  virtual void sit_out_back(Units range, const Pass& pass, const GradientReady& ready);

  /// Takes part, without a sample, in a forward pass by which other ranks look for a fault; `inputs` are those of any batch.
  void take_part(const at::Tensor& inputs, bool training);

  // ---- the whole model
  Units all() const { return {0, units().size()}; }
  at::Tensor run(const at::Tensor& input, const Pass& pass, Trace* trace) { return run(all(), {input}, pass, trace).at(0); }
  at::Tensor back(const at::Tensor& gradient, const Pass& pass, Trace& trace, const GradientReady& ready = nullptr,
                  bool wants_input = false) {
    Tensors inputs = back(all(), {gradient}, pass, trace, {.inputs = wants_input}, ready);
    return wants_input ? inputs.at(0) : at::Tensor();
  }
};

}  // namespace paceline::nn
