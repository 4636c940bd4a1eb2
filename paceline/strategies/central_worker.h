// A worker of a parameter server, in a thread or in a process of its own: a module, and a way to the servers.
//
//   pull ─ forward ─ report (loss, statistics → factor) ─ backward ─ push                   (Algorithm 1 of the LC-ASGD slides)
//
// Under rules with a period it makes several steps of its own between two visits.
#pragma once

#include "paceline/ps/client.h"
#include "paceline/strategies/central.h"
#include "paceline/strategies/updater.h"

namespace paceline::strategies {

class CentralWorker {
 public:
  /// `context` is the run's; the worker has a module of its own like the context's.
  CentralWorker(const Context& context, const ps::PsConfig& config, std::unique_ptr<ps::Client> client, int index);

  /// In the thread that will compute.
  void begin();
  /// Computes one minibatch, and visits the servers before and after it where that is due. Returns its sums [2], on the host.
  at::Tensor minibatch(const Batch& batch, const Point& point);
  bool visits() const { return local_ == 0; }                    // the next minibatch begins with a pull
  const at::Tensor& running() const { return running_; }         // its own batch norms' statistics
  const ps::Iteration& durations() const { return durations_; }  // of the last minibatch, as measured

 private:
  const Context& context_;
  std::shared_ptr<nn::GraphModule> module_;
  Context own_;
  std::unique_ptr<ps::Client> client_;
  std::unique_ptr<ps::UpdateRule> rule_;  // what it asks of workers; the server has one of its own
  NormReports norms_;
  int index_;
  std::string lane_;
  std::optional<LocalPass> pass_;
  std::optional<Updater> updater_;
  at::Tensor statistics_, running_, sum_;
  std::int64_t iteration_ = 0, local_ = 0;
  ps::Iteration durations_;
};

}  // namespace paceline::strategies
