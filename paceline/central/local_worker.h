// One worker of a parameter server between two visits to it: what it makes of its gradients, whichever clock it runs by and whoever
// carries what it pushes. A worker in a thread or a process (central_worker.h) has a module of its own, and so has one in a user's own loop
// (server_client.h); the workers of a virtual clock (virtual_executor.h) share one.
//
// Usually a worker pushes every gradient. Under rules with a period it makes several steps of its own between two visits and pushes the
// sum of their gradients. With ps.optimizer=worker its own optimizer makes these steps and it pushes their sum, and elastic replicas push
// their parameters.
//
// Invariant: its optimizer's step number counts the updates that were made, and a gradient that is not finite ends the visit without one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/central/norm_reports.h"
#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"
#include "paceline/step/state.h"
#include "paceline/step/updater.h"

namespace paceline::central {

/// What the update rule and [ps] ask of a worker.
struct Duties {
  Duties(const ps::PsConfig& config, const ps::UpdateRule& rule)
      : replica(rule.needs().replica),
        steps(config.pushes_steps()),
        sent_own(rule.needs().sends_own),
        advised(rule.needs().advises),
        period(rule.period()) {}

  bool replica;         // it pushes its parameters
  bool steps;           // it pushes the sum of the steps that its own optimizer made
  bool sent_own;        // a pull gives it something else than the server's parameters
  bool advised;         // it reports its loss and waits for the answer before it goes on with its gradient
  std::int64_t period;  // minibatches between two visits

  bool optimizes() const { return replica || steps; }
  bool departs() const { return optimizes() || period > 1; }  // from the parameters that it pulled
};

/// The optimizer of a worker that makes steps of its own; null for others.
std::unique_ptr<step::Updater> make_updater(const Duties& duties, tensor::Arena& arena, const optim::OptimConfig& optim);

class LocalWorker {
 public:
  /// Tensors [length] each, and [n] of batch norms; undefined where it has no use for them.
  struct Memory {
    at::Tensor parameters;           // what it computes with
    at::Tensor pushed;               // what it will push, where that is neither its parameters nor the arena's gradients
    at::Tensor momentum;             // [buffers, length]: of the optimizer, where workers share one
    at::Tensor statistics, running;  // of its last batch; its own
  };

  /// `arena` is that of the module which computes its gradients, `updater` an optimizer on it: null unless duties.optimizes(), and where
  /// the optimizer of a user's own loop makes the steps. `norms`: null where nobody reports them. Where workers share the module, each
  /// keeps copies of what it goes on with. All of them outlive it.
  LocalWorker(const Duties& duties, NormReports* norms, tensor::Arena& arena, step::Updater* updater, bool shares_module);

  bool visits() const { return since_visit_ == 0; }                        // the next minibatch begins with a pull
  bool ends_period() const { return since_visit_ + 1 >= duties_.period; }  // a push follows the next minibatch
  /// Elastic replicas keep what their last visit left in them, unless it was refused after their parameters had taken it.
  bool needs_pull() const { return !duties_.replica || iteration_ == 0 || (refused_ && !updater_); }
  bool refused() const { return refused_; }                       // the last gradient was not finite, and nothing used it
  std::int64_t iteration() const { return iteration_; }           // minibatches so far
  std::int64_t skipped() const { return iteration_ - updates_; }  // those that its optimizer made no update with
  std::int64_t since_visit() const { return since_visit_; }
  const at::Tensor& parameters() const { return memory_.parameters; }  // a pull goes there
  const at::Tensor& statistics() const { return memory_.statistics; }
  const at::Tensor& running() const { return memory_.running; }
  /// What it pushes.
  const at::Tensor& sent() const;
  /// Whether that is finite, as far as the worker must say so: [1], on the device, so that nobody has to wait for a GPU to tell. Servers
  /// look at host memory themselves; what lies on a GPU they judge by the loss that comes with it.
  at::Tensor finite() const;

  void pulled();
  /// Its parameters are in the arena from here on.
  void take_the_module();
  void after_pass(std::int64_t micro_batches);
  /// The gradient in the arena is complete. True: the worker visits the server now.
  bool take_gradient(float rate);
  /// The loop's own optimizer has made its step, where duties.optimizes() without an updater. True: the worker visits the server now.
  bool take_step();
  /// The minibatch under way was given up.
  void leave_off() { ++iteration_, since_visit_ = 0; }
  void pushed() { since_visit_ = 0; }

  /// What a worker with a module of its own goes on with after a checkpoint; empty where there is nothing.
  std::vector<step::NamedTensor> save() const;
  void load(std::span<const step::NamedTensor> state);
  /// The same for workers that share one.
  Memory& memory() { return memory_; }
  void resume_at(std::int64_t iteration, std::int64_t since_visit, std::int64_t skipped) {
    iteration_ = iteration, since_visit_ = since_visit, updates_ = iteration - skipped;
  }

 private:
  void own_step(float rate);

  Duties duties_;
  NormReports* norms_;
  tensor::Arena& arena_;
  step::Updater* updater_;
  bool shares_module_;
  Memory memory_;
  std::int64_t iteration_ = 0, since_visit_ = 0, updates_ = 0;
  bool refused_ = false;
};

}  // namespace paceline::central
