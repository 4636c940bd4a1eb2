// A worker of a parameter server, in a thread or process of its own: a module, and a client of the servers.
//
//   pull ─ forward ─ report (loss, statistics → factor) ─ backward ─ push                   (Algorithm 1 of the LC-ASGD slides)
//
// LocalWorker decides what becomes of a gradient. If the consistency cancels computations, the worker asks from time to time whether its
// minibatch was cancelled, and stops if so.
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
  /// `context` is the run's; the worker gets a module of its own, like the context's. Context and settings outlive it. The caller has
  /// configured LibTorch for its thread (tensor::configure_libtorch).
  CentralWorker(const step::Context& context, const Settings& settings, std::unique_ptr<ps::Client> client, int index);

  /// Computes one minibatch, with a visit to the servers before and after it if one is due. Returns its sums [2], on the host. A minibatch
  /// that is cancelled ends early and is not pushed.
  at::Tensor minibatch(const step::Batch& batch, const step::Point& point);
  bool visits() const { return local_.visits(); }                 // the next minibatch begins with a pull
  const at::Tensor& running() const { return local_.running(); }  // the statistics of its own batch norms
  const ps::Iteration& durations() const { return durations_; }   // of the last minibatch, measured

  /// The worker's state apart from the servers' parameters, for a checkpoint; empty if there is none.
  std::vector<step::NamedTensor> save() const;
  void load(std::span<const step::NamedTensor> state);

 private:
  struct Cancelled {};  // thrown to abandon a pass

  void pull(float rate);
  at::Tensor pass(const step::Batch& batch, const std::function<void(const at::Tensor&)>& told);
  void forward_and_backward(const step::Batch& batch, const step::Point& point, bool last, Nanoseconds computed_before);
  void straggle(Nanoseconds began);
  void push(float rate);
  /// Throws Cancelled if the servers have cancelled the minibatch. Asking takes at most a hundredth of the time.
  void ask();

  const Settings& settings_;
  const step::Context& context_;
  std::shared_ptr<nn::Model> module_;
  std::unique_ptr<ps::Client> client_;
  Duties duties_;
  NormReports norms_;
  std::unique_ptr<step::Updater> updater_;  // null unless duties_.optimizes()
  LocalWorker local_;
  int index_;
  std::string lane_;
  step::LocalPass pass_;
  step::RecordedStep recorded_;
  step::Batch place_;  // on a GPU: where the recorded pass reads its batch
  at::Tensor sums_;
  ps::Iteration durations_;
  double loss_ = 0;
  ps::Advice advice_;
  bool cancels_;  // its minibatches may be cancelled
  Nanoseconds ask_again_{0};
};

}  // namespace paceline::central
