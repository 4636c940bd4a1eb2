// Running means and variances of batch norms with several workers: either each worker has those of its own share (local), or all have those
// of the whole batch (sync). Evaluations and checkpoints use the mean over all workers, or the first worker's.
#pragma once

#include "paceline/step/batch_pass.h"

namespace paceline::data_parallel {

class WorkerStatistics {
 public:
  /// `batch_norm` and `statistics` are the keys of [strategy]: local or sync, mean or first.
  WorkerStatistics(const step::Context& context, const std::string& batch_norm, const std::string& statistics);

  bool synchronised() const { return synchronised_; }
  /// Makes the norms of `pass` see the whole batch, if the recipe says so. Collective.
  void synchronise(step::BatchPass& pass);

  void agree();
  void resume_training();
  std::vector<step::NamedTensor> save();
  void load(std::span<const step::NamedTensor> state);

 private:
  std::vector<step::NamedTensor> rows(const at::Tensor& flat) const;
  bool differ() const { return !synchronised_ && context_.workers() > 1 && values().numel() > 0; }
  const at::Tensor& values() const { return context_.model.statistics().parameters(); }
  const at::Tensor& own() const { return own_.defined() ? own_ : values(); }

  const step::Context& context_;
  bool first_, synchronised_;
  std::unique_ptr<comm::Communicator>
      comm_;        // for the norms alone: they communicate in the middle of a pass, while gradients are in flight
  at::Tensor own_;  // while the module has the agreed ones
};

}  // namespace paceline::data_parallel
