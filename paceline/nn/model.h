// What strategies train: an ordered list of units with their parameters in an arena, and a forward and a backward pass over any range of
// them. GraphModule is one, made from a network's description; ModuleModel is another, for any torch::nn::Module.
//
// A pass has no state in the model: everything that backward needs is in the Trace, so several micro-batches may be in flight. The
// gradients of weights can be put off (Wanted::weights = false) and asked for later by weight_gradients(), which pipelines without bubbles
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
  std::optional<std::size_t> borrows = {};  // a unit before it, of whose parameters it uses some as well (tied embeddings)
};

/// A weight that two units share, where the stages of a pipeline part them: the stage of the first one trains it, and that of the second
/// has a copy, which is in no arena.
struct TiedWeight {
  at::Tensor values, gradient;       // as this stage has them; undefined on the stages in between
  std::optional<std::size_t> entry;  // in the arena, where it is trained
};

using graph::Units;

/// What a forward pass leaves for its backward pass: of one micro-batch, for all units that it went through.
struct Trace {
  /// What a unit, or a segment of units, is computed again from (recomputing_model.h).
  struct Kept {
    Tensors inputs = {};
    at::Tensor chance = {};  // state of LibTorch's generator before it; undefined where nothing is drawn from it
    std::size_t last = 0;    // the unit behind the segment
    bool complete = false;   // nothing is computed again: all that backward needs is in `saved`
  };

  std::vector<Tensors> saved;              // by layer, or by unit
  std::vector<Kept> kept;                  // by unit; empty: the model computes nothing again
  std::vector<std::vector<PutOff>> later;  // by unit: gradients of weights that were put off
  std::vector<bool> forward;               // by unit: it went forward and not yet back

  /// Before a forward pass over `range` of a model with so many units, which saves in so many places.
  void begin(std::size_t places, std::size_t units, Units range);
  /// Before a backward pass. ConfigError where no forward pass went before it.
  void use_up(Units range);
  /// Memory that `saved` and `kept` hold, each storage once. What autograd keeps behind the output of a user's module is not seen here.
  std::int64_t bytes() const;
};

/// What a backward pass makes.
struct Wanted {
  bool inputs = false;  // the gradients of what went into the first unit of the range
  bool weights = true;  // false: put off until weight_gradients(). Small ones that come for nothing (norms) are made anyway
};

/// Called when the gradients of arena entries [first, last) are complete, once for each entry; the entries of the last units come first.
using GradientReady = std::function<void(std::size_t first, std::size_t last)>;

/// A tensor of a model that lies in no arena.
struct Untrained {
  std::string name;
  at::Tensor tensor;
  bool held = true;  // false: other ranks of a pipeline have it
};

/// A piece of the forward pass that a diagnosis can name: a layer of a graph, or a unit. Its weights are entries of the two arenas.
struct Part {
  std::string name;  // "layer 'conv1'"
  std::vector<std::size_t> parameters = {}, statistics = {};
};

/// Called with each part's output in the order of the forward pass.
using Visit = std::function<void(std::size_t part, const at::Tensor& output)>;

class Model {
 public:
  virtual ~Model() = default;

  /// The model that computes, inside of decorators.
  virtual const Model& network() const { return *this; }

  /// Another model of the same kind, with weights and memory of its own, for a worker that shares this process. ConfigError where nobody
  /// said how to make one.
  virtual std::shared_ptr<Model> another() const = 0;

  virtual const std::vector<Unit>& units() const = 0;
  virtual tensor::Arena& arena() = 0;
  virtual tensor::Arena& statistics() = 0;                          ///< running statistics of norms
  virtual double statistics_momentum(std::size_t entry) const = 0;  ///< the weight that a new batch has in that entry of statistics()
  /// What belongs to the model and is not trained: frozen parameters of a user's module, and its buffers that are no running statistics.
  virtual std::vector<Untrained> untrained() const { return {}; }
  /// Nothing: no weight is shared with another stage.
  virtual std::optional<TiedWeight> tied() const { return std::nullopt; }
  virtual std::vector<graph::Alias> aliases() const { return {}; }
  virtual const c10::Device& device() const = 0;
  virtual tensor::Precision precision() const = 0;
  virtual bool uses_chance() const = 0;  ///< has dropout
  virtual bool takes_masks() const = 0;  ///< draws the Pass's masks, and nothing from LibTorch's generator
  virtual bool recordable() const = 0;   ///< its passes can be recorded in a CUDA graph
  /// Data-parallel workers exchange samples in the middle of a pass: all of them make as many, a worker without samples too. Pass::shares
  /// says who has how many; a forward pass that does not know asks the others.
  virtual bool exchanges_samples() const { return false; }
  /// Data-parallel workers need one another in a pass, for samples or for parameters: none may leave one out.
  virtual bool workers_meet() const { return exchanges_samples(); }

  virtual Traffic traffic() const { return {}; }  ///< since it was made

  virtual std::vector<Part> parts() const = 0;
  /// A forward pass that shows the output of every part.
  virtual void walk(const at::Tensor& input, const Pass& pass, const Visit& visit) = 0;

  /// Tells the model that the arena's parameters changed: refreshes copies in lower precision.
  virtual void refresh() = 0;
  /// The parameters of these units came into memory, or go: so do copies of them.
  virtual void units_came(Units) { refresh(); }
  virtual void units_go(Units) {}
  /// Brings what torch::load() put elsewhere back into the arenas.
  virtual void take_back() = 0;

  /// Forward pass without autograd around it: `inputs` are what the first unit takes, the result is what the unit behind the range takes,
  /// or the model's output. `trace` null: keep nothing (evaluation).
  virtual Tensors run(Units range, Tensors inputs, const Pass& pass, Trace* trace) = 0;
  /// Backward pass of `trace`, which it uses up, over a range that run() went through: `gradients` belong to what that returned. Fills the
  /// arena's gradients and returns those of the inputs, where they are wanted.
  virtual Tensors back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted,
                       const GradientReady& ready) = 0;
  /// The gradients that back() put off.
  virtual void weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) = 0;

  /// In place of run() and back() for a share without samples. Ranks may have to meet in a pass, and then none may leave it out; gradients
  /// that are not added to become zeros. `trained`: the run has a trace.
  virtual void sit_out_run(Units, bool /*trained*/) {}
  virtual void sit_out_back(Units range, const Pass& pass, const GradientReady& ready);

  /// Takes part in a forward pass of other ranks that look for a fault, without a sample; `inputs` are those of any batch.
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
