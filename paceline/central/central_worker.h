// A worker of a parameter server, in a thread or in a process of its own: a module, and a way to the servers.
//
//   pull ─ forward ─ report (loss, statistics → factor) ─ backward ─ push                   (Algorithm 1 of the LC-ASGD slides)
//
// Under rules with a period it makes several steps of its own between two visits. With ps.optimizer=worker it pushes the way that it went
// since its pull instead of a gradient. Where a consistency cancels what is under way, it asks now and then whether it computes in vain,
// and leaves off.
#pragma once

#include "paceline/central/central.h"
#include "paceline/central/norm_reports.h"
#include "paceline/ps/client.h"
#include "paceline/step/updater.h"

namespace paceline::central {

class CentralWorker {
 public:
  /// `context` is the run's; the worker has a module of its own like the context's.
  CentralWorker(const step::Context& context, const ps::PsConfig& config, std::unique_ptr<ps::Client> client, int index);

  /// In the thread that will compute.
  void begin();
  /// Computes one minibatch, and visits the servers before and after it where that is due. Returns its sums [2], on the host. One that
  /// turns out to be in vain ends early and is not pushed.
  at::Tensor minibatch(const step::Batch& batch, const step::Point& point);
  bool visits() const { return local_ == 0; }                    // the next minibatch begins with a pull
  const at::Tensor& running() const { return running_; }         // its own batch norms' statistics
  const ps::Iteration& durations() const { return durations_; }  // of the last minibatch, as measured

  /// What it has beside the servers' parameters and goes on with after a checkpoint; empty where there is nothing.
  std::vector<step::NamedTensor> save() const;
  void load(std::span<const step::NamedTensor> state);

 private:
  struct InVain {};  // ends a pass

  void pull(float rate);
  at::Tensor pass(const step::Batch& batch, const std::function<void(const at::Tensor&)>& told);
  void forward_and_backward(const step::Batch& batch, const step::Point& point, bool last, Nanoseconds computed_before);
  void straggle(Nanoseconds began);
  void go_on(float rate, bool last);
  void push(float rate);
  /// Throws InVain where the servers say so. Spends no more than a hundredth of the time on asking.
  void ask();

  const step::Context& context_;
  std::shared_ptr<nn::GraphModule> module_;
  step::Context own_;
  std::unique_ptr<ps::Client> client_;
  std::unique_ptr<ps::UpdateRule> rule_;  // what it asks of workers; the server has one of its own
  NormReports norms_;
  int index_;
  std::string lane_;
  std::optional<step::LocalPass> pass_;
  step::RecordedStep recorded_;
  step::Batch place_;  // on a GPU: where the recorded pass finds its batch
  std::optional<step::Updater> updater_;
  at::Tensor statistics_, running_, sums_;
  at::Tensor way_;  // [length]: the sum of gradients since the last pull, or what was pulled then
  std::int64_t iteration_ = 0, local_ = 0, updates_ = 0;
  ps::Iteration durations_;
  double loss_ = 0;
  ps::Advice advice_;
  bool cancels_;  // it may compute in vain
  Nanoseconds ask_again_{0};
};

}  // namespace paceline::central
