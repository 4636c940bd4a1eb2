// A rank's part in the forward and backward pass over its worker's share of a batch, in micro-batches whose gradients are added. Every
// strategy makes it. LocalPass computes the whole model; pipeline::PipelinePass one stage of it.
#pragma once

#include "paceline/step/strategy.h"

namespace paceline::step {

class BatchPass {
 public:
  virtual ~BatchPass() = default;

  /// Called before a step: dropout draws from the streams of this step and worker.
  virtual void begin_step(std::int64_t step) = 0;
  /// Fills the arena's gradients with weight × the gradient of the sum of losses, and returns [2] sums: losses, right answers; zeros if
  /// scores() is false. `ready` is called with the gradients that are complete during the last micro-batch's backward pass. A share without
  /// samples gives zeros. `told` is called with the sums when all forward passes are done and the last backward pass begins.
  virtual at::Tensor run(const Batch& batch, double weight, const nn::GradientReady& ready = nullptr,
                         const std::function<void(const at::Tensor&)>& told = nullptr) = 0;
  /// Gradients are handed over during run() instead of being accumulated: `ready` is called in each part, and `done` at its end. All
  /// workers have the same number of parts, some perhaps without samples.
  virtual void hand_over(std::function<void()> done) = 0;
  /// How many times run() will hand gradients over.
  virtual std::int64_t parts_of(const Batch& batch) const = 0;
  /// Loss::evaluate's sums over the share, with the current model; zeros for a share without samples, and if scores() is false.
  virtual at::Tensor evaluate(const Batch& batch) = 0;
  /// Whether this rank has the model's output, so that sums over ranks count each sample once.
  virtual bool scores() const = 0;
  /// After an error elsewhere: cancels what earlier calls left in flight, so that destroying it waits for nobody.
  virtual void abandon() {}

  /// What run(), the model and the loss have sent in all steps so far.
  virtual Traffic traffic() const = 0;
  /// Notes that the last run() was recorded and its first replay launched, or that it was replayed again, so that traffic() counts it too.
  virtual void was_recorded() {}
  virtual void was_replayed() {}

  /// Lets batch norms see the whole batch: sums tensors over all workers.
  virtual void synchronise_norms(std::function<void(at::Tensor&)> sum_over_workers) = 0;
};

/// What the model and the loss have sent since they were created.
class TrafficMeter {
 public:
  /// Both outlive it.
  TrafficMeter(const nn::Model& model, const nn::Loss& loss) : model_(model), loss_(loss), before_(now()) {}
  Traffic sent() const;

 private:
  nn::Traffic now() const;

  const nn::Model& model_;
  const nn::Loss& loss_;
  nn::Traffic before_;
};

/// Micro-batch `index` of `parts` of a batch: every one has at least one sample.
struct MicroBatch {
  std::int64_t begin = 0, count = 0;
};
constexpr MicroBatch micro_batch(std::int64_t samples, std::int64_t parts, std::int64_t index) {
  const std::int64_t begin = samples * index / parts;
  return {begin, samples * (index + 1) / parts - begin};
}

}  // namespace paceline::step
