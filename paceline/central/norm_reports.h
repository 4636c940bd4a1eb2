// Batch norms with a parameter server: the statistics of a worker's batch, and which statistics a model is evaluated with.
#pragma once

#include "paceline/nn/model.h"

namespace paceline::central {

/// Which statistics the batch norms are evaluated with. The Trainer makes `recomputed` ones from training data.
inline constexpr const char* kAsyncView = "async";
inline constexpr const char* kWorkerView = "worker";
inline constexpr const char* kRecomputedView = "recomputed";

/// The batch norms of one worker. Splits what a forward pass leaves in the module's running statistics into the batch's own statistics and
/// the worker's running ones. The module's are zero before a pass, so its norms leave 1 − (1 − momentum)ⁿ times the mean over n
/// micro-batches. Buffers of a user's module that are no such mean (momentum 0) are left as they are, and may be infinite.
class NormReports {
 public:
  explicit NormReports(nn::Model& module);

  bool any() const { return count() > 0; }
  std::int64_t count() const { return values_.numel(); }
  at::Tensor initial() const { return initial_.clone(); }
  void before_pass();
  /// batch ← the batch's statistics; running ← the worker's, updated with those. If a norm's are not finite, both stay as they were: the
  /// gradient of such a batch may be finite, and what was added to `running` would never leave it.
  void after_pass(at::Tensor& batch, at::Tensor& running, std::int64_t micro_batches);
  void show(const at::Tensor& statistics) { at::Tensor(values_).copy_(statistics); }

 private:
  at::Tensor values_;              // the module's, in place
  at::Tensor initial_, momentum_;  // [n]
  at::Tensor averaged_, others_;   // [n]: where the momentum is positive, and where it is 0
  at::Tensor kept_, fresh_;        // [n]: (1 − momentum)ⁿ, and one minus it, for the n of the last pass
  std::int64_t micro_batches_ = 0;
};

}  // namespace paceline::central
