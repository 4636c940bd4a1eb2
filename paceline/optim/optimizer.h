// Optimizers on the arena: flat buffers of parameters, gradients and state, updated range by range in one pass over memory.
//
// Without LibTorch: an optimizer only sees pointers. A range consists of whole tensors, so the same call serves one worker (the whole
// arena), an allreduce bucket that has just arrived, a ZeRO shard and a parameter server's range. A Segment may also be a part of a tensor
// if every element is updated independently. LARS and LAMB need the norms of whole tensors; their update has two halves, between which the
// holders of the pieces sum their squares.
//
// The formulas are in rules/; cpu_optimizer.h and cuda_optimizer.h have the loops around them.
//
// Invariant: updating ranges one by one, in any order, on any number of threads, gives the same bits as updating the whole at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"

namespace paceline::optim {

/// [optim] of a recipe.
struct OptimConfig {
  std::string name = "sgd";
  double rate = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  bool decay_norms = false;                                 // decay norms and biases as well
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;        // adam, adamw, lamb; beta2: rmsprop; epsilon: adagrad, rmsprop
  double trust = 0.001;                                     // lars: η
  double clip_norm = 0;                                     // 0: no clipping; otherwise the largest global norm of the gradient
  double rmsprop_rate = 3e-4;                               // rmsprop_warmup: rate of RMSprop's part
  double transition_center = 400, transition_period = 200;  // rmsprop_warmup: in steps

  void describe(Section& section);
};

/// Throws ConfigError if fields contradict each other. The factories below call it.
void validate(const OptimConfig& config);

/// One tensor of the arena, or a piece of one.
struct Segment {
  std::int64_t offset = 0, count = 0;  // in elements of the flat buffers
  bool decay = true;                   // has weight decay, and LARS and LAMB adapt its rate
  std::int32_t tensor = 0;             // the tensor's index, where squares are summed by tensor
};

/// Flat buffers, all of the arena's length; state[i] belongs to Optimizer::state_names()[i] and starts as zeros. On CUDA all of these are
/// device pointers, and the work is enqueued on `stream`.
struct Buffers {
  float* parameters = nullptr;
  float* gradients = nullptr;
  std::vector<float*> state = {};
  const double* squared_norm =
      nullptr;             // of the whole gradient, before gradient_scale: if given, the update clips to OptimConfig::clip_norm
  void* stream = nullptr;  // CUDA: a cudaStream_t
};

/// What changes from step to step. On the GPU it is in device memory, so that a captured step reads the current values.
struct Hyper {
  float rate = 0;
  float gradient_scale = 1;  // multiplies every gradient: loss scaling, 1/count
  float decay_scale = 1;     // multiplies the weight decay, for a gradient that is a sum of several
  std::int64_t step = 1;     // counts from 1; bias correction of Adam
};

/// Sums of squares over a tensor, for the trust factors of LARS and LAMB.
struct Squares {
  double parameters = 0, others = 0;  // others: gradients (LARS), directions (LAMB)
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> state_names() const = 0;  // "momentum"; "first_moment", "second_moment"
  /// Whether every element is updated independently, so that a part of a tensor may be a Segment; false if norms of tensors matter.
  virtual bool elementwise() const = 0;
  /// Updates the tensors of `segments` (consecutive in the arena, ascending), and zeroes their gradients in the same pass if requested.
  virtual void update(const Buffers& buffers, std::span<const Segment> segments, const Hyper& hyper, bool zero_gradients) = 0;

  /// The same in two halves, for rules that are not elementwise() if tensors are divided among ranks: the first half adds the squares of
  /// each piece to those of its tensor (and LAMB updates its moments), the second half takes the squares of whole tensors. `squares` are by
  /// Segment::tensor, on the optimizer's device. No two pieces of a call are of the same tensor.
  virtual void measure(const Buffers& buffers, std::span<const Segment> pieces, const Hyper& hyper, Squares* squares) = 0;
  virtual void move(const Buffers& buffers, std::span<const Segment> pieces, const Hyper& hyper, const Squares* squares) = 0;
};

/// A row of the table.
struct OptimizerKind {
  std::unique_ptr<Optimizer> (*make)(const OptimConfig&);
  bool nesterov = false;    // has Nesterov's momentum
  bool heavy_ball = false;  // moves by rate · v with v ← momentum · v + gradient, so that v may be kept elsewhere (dana, dgc)
  double usual_rate = 0;    // of an optimizer to whose updates the default optim.rate does not fit
};
std::span<const Entry<OptimizerKind>> optimizers();
const OptimizerKind& optimizer_kind(const std::string& name);
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config);

/// Square of the L2 norm of n gradients, in an order of addition that does not depend on the number of threads.
double squared_norm(const float* values, std::int64_t n);

}  // namespace paceline::optim
