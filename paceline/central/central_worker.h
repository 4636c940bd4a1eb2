// A worker of a parameter server, in a thread or in a process of its own: a module, and a way to the servers.
//
//   pull ─ forward ─ report (loss, statistics → factor) ─ backward ─ push                   (Algorithm 1 of the LC-ASGD slides)
//
// What it makes of a gradient is LocalWorker's. Where a consistency cancels what is under way, it asks now and then whether it computes in
// vain, and leaves off.
#pragma once

#include <memory>
#include <string>

#include "paceline/central/local_worker.h"
#include "paceline/central/settings.h"
#include "paceline/ps/client.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/recorded_step.h"

namespace paceline::central {

class CentralWorker {
 public:
  /// `context` is the run's; the worker has a module of its own like the context's. Context and settings outlive it. Whoever
  /// calls it has configured LibTorch for its thread (tensor::configure_libtorch).
  CentralWorker(const step::Context& context, const Settings& settings, std::unique_ptr<ps::Client> client, int index);

  /// Computes one minibatch, and visits the servers before and after it where that is due. Returns its sums [2], on the host. One that
  /// turns out to be in vain ends early and is not pushed.
  at::Tensor minibatch(const step::Batch& batch, const step::Point& point);
  bool visits() const { return local_.visits(); }                 // the next minibatch begins with a pull
  const at::Tensor& running() const { return local_.running(); }  // its own batch norms' statistics
  const ps::Iteration& durations() const { return durations_; }   // of the last minibatch, as measured

  /// What it has beside the servers' parameters and goes on with after a checkpoint; empty where there is nothing.
  std::vector<step::NamedTensor> save() const { return local_.save(); }
  void load(std::span<const step::NamedTensor> state) { local_.load(state); }

 private:
  struct InVain {};  // ends a pass

  void pull(float rate);
  at::Tensor pass(const step::Batch& batch, const std::function<void(const at::Tensor&)>& told);
  void forward_and_backward(const step::Batch& batch, const step::Point& point, bool last, Nanoseconds computed_before);
  void straggle(Nanoseconds began);
  void push(float rate);
  /// Throws InVain where the servers say so. Spends no more than a hundredth of the time on asking.
  void ask();

  const Settings& settings_;
  std::shared_ptr<nn::Model> module_;
  step::Context context_;  // with its own module
  std::unique_ptr<ps::Client> client_;
  Duties duties_;
  NormReports norms_;
  std::unique_ptr<step::Updater> updater_;  // null unless duties_.optimizes()
  LocalWorker local_;
  int index_;
  std::string lane_;
  step::LocalPass pass_;
  step::RecordedStep recorded_;
  step::Batch place_;  // on a GPU: where the recorded pass finds its batch
  at::Tensor sums_;
  ps::Iteration durations_;
  double loss_ = 0;
  ps::Advice advice_;
  bool cancels_;  // it may compute in vain
  Nanoseconds ask_again_{0};
};

}  // namespace paceline::central
