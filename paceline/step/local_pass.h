// One worker's forward and backward pass over its share of a batch, in micro-batches whose gradients are added. Every strategy makes it.
#pragma once

#include "paceline/step/strategy.h"

namespace paceline::step {

class LocalPass {
 public:
  explicit LocalPass(const Context& context);

  /// Before a step: dropout draws from a stream of this step and worker.
  void begin_step(std::int64_t step);
  /// Fills the arena's gradients with weight × the gradient of the sum of losses, and returns [2] sums: losses, right answers. `ready` is
  /// told which gradients are complete while the last micro-batch goes back. A share without samples gives zeros.
  /// `told` is called with the sums once all forward passes are made and the last backward pass begins.
  at::Tensor run(const Batch& batch, double weight, const nn::GradientReady& ready = nullptr,
                 const std::function<void(const at::Tensor&)>& told = nullptr);

  /// Lets batch norms see the whole batch: adds tensors up over all workers.
  void synchronise_norms(std::function<void(at::Tensor&)> sum_over_workers) { pass_.sum_over_workers = std::move(sum_over_workers); }

 private:
  const Context& context_;
  nn::Pass pass_;
  std::int64_t step_ = 0;
};

/// A phase on a lane of this worker, for whoever wants a trace.
class PhaseSpan {
 public:
  PhaseSpan(const Context& context, const char* name, const char* lane = "step")
      : context_(context), name_(name), lane_(lane), begin_(context.clock.now()) {}
  ~PhaseSpan() {
    if (context_.bus.wants_spans()) context_.bus.emit(observe::Span{name_, lane_, context_.rank(), begin_, context_.clock.now()});
  }
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  const Context& context_;
  const char *name_, *lane_;
  Nanoseconds begin_;
};

}  // namespace paceline::step
