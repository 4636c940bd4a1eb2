// One worker of a parameter server between two visits to it: what it does with its gradients, under any clock and any transport. A worker
// in a thread or a process (central_worker.h) has its own module, and so has one in a user's own loop (server_client.h); the workers of a
// virtual clock (virtual_executor.h) share one.
//
// Usually a worker pushes every gradient. Under rules with a period it makes several local steps between two visits and pushes the sum of
// their gradients. With ps.optimizer=worker its own optimizer makes these steps and it pushes their sum; elastic replicas push their
// parameters.
//
// Invariant: its optimizer's step number counts the updates that were made; neither a non-finite gradient nor a cancelled minibatch makes
// an update.
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

/// What the update rule and [ps] require of a worker.
struct Duties {
  Duties(const ps::PsConfig& config, const ps::UpdateRule& rule)
      : replica(rule.needs().replica),
        steps(config.pushes_steps()),
        sent_own(rule.needs().sends_own),
        advised(rule.needs().advises),
        period(rule.period()) {}

  bool replica;              // it pushes its parameters
  bool steps;                // it pushes the sum of the steps that its own optimizer made
  bool sent_own;             // a pull returns something other than the server's parameters
  bool advised;              // it reports its loss and waits for the answer before its backward pass
  std::int64_t period;       // minibatches between two visits
  bool cancellable = false;  // the consistency may cancel a minibatch that a virtual clock has already computed

  /// The same for one particular worker, which may be slower than others.
  Duties of_worker(const ps::PsConfig& config, int worker) const {
    Duties own = *this;
    own.period = ps::period_of(config, period, worker);
    return own;
  }
  bool optimizes() const { return replica || steps; }
  bool departs() const { return optimizes() || period > 1; }  // from the parameters that it pulled
};

/// The optimizer of a worker that makes local steps; null for others.
std::unique_ptr<step::Updater> make_updater(const Duties& duties, tensor::Arena& arena, const optim::OptimConfig& optim);

class LocalWorker {
 public:
  /// Tensors of [length] each, and of [n] for batch norms; undefined if not needed.
  struct Memory {
    at::Tensor parameters;           // that it computes with
    at::Tensor pushed;               // what the next push sends, if that is neither its parameters nor the arena's gradients
    at::Tensor momentum;             // [buffers, length]: the optimizer's, if workers share one
    at::Tensor momentum_before;      // before the last update, which may have to be undone
    at::Tensor statistics, running;  // of its last batch; its own
  };

  /// `arena` belongs to the module that computes its gradients. `updater` is an optimizer on it: null unless duties.optimizes(), and if the
  /// optimizer of a user's own loop makes the steps. `norms` is null if they are not reported. If workers share the module, each keeps
  /// copies of its own state. All arguments outlive it.
  LocalWorker(const Duties& duties, NormReports* norms, tensor::Arena& arena, step::Updater* updater, bool shares_module);

  bool visits() const { return since_visit_ == 0; }                        // the next minibatch begins with a pull
  bool ends_period() const { return since_visit_ + 1 >= duties_.period; }  // a push follows the next minibatch
  /// Elastic replicas continue from what their last visit left, unless their push was refused.
  bool needs_pull() const { return !duties_.replica || iteration_ == 0 || (refused_ && !updater_); }
  bool refused() const { return refused_; }                       // the last gradient was not finite and was not applied
  std::int64_t iteration() const { return iteration_; }           // minibatches so far
  std::int64_t skipped() const { return iteration_ - updates_; }  // minibatches for which its optimizer made no update
  std::int64_t since_visit() const { return since_visit_; }
  const at::Tensor& parameters() const { return memory_.parameters; }  // where a pull writes
  const at::Tensor& statistics() const { return memory_.statistics; }
  const at::Tensor& running() const { return memory_.running; }
  /// What a push sends.
  const at::Tensor& sent() const;
  /// Whether that is finite, if the worker has to say so: [1], on the device, so that no thread waits for a GPU. Servers check host memory
  /// themselves; for GPU memory they rely on what the push says.
  at::Tensor finite() const;

  void pulled();
  /// From now on its parameters are in the arena.
  void take_the_module();
  void after_pass(std::int64_t micro_batches);
  /// Called when the gradient in the arena is complete. Returns true if the worker now visits the server.
  bool take_gradient(float rate);
  /// Called after the optimizer of the user's loop has made its step, if duties.optimizes() and there is no updater. Returns true if the
  /// worker now visits the server.
  bool take_step();
  /// Abandons the minibatch in progress.
  void leave_off() { ++iteration_, since_visit_ = 0; }
  /// The same after take_gradient(), as happens with duties.cancellable: the update is undone. The next pull restores the parameters.
  void call_off();
  void pushed() { since_visit_ = 0; }

  /// The state of a worker with a module of its own, for a checkpoint; empty if there is none.
  std::vector<step::NamedTensor> save() const;
  void load(std::span<const step::NamedTensor> state);
  /// The same for workers that share a module.
  Memory& memory() { return memory_; }
  void resume_at(std::int64_t iteration, std::int64_t since_visit, std::int64_t skipped, bool finite);

 private:
  void own_step(float rate);

  Duties duties_;
  NormReports* norms_;
  tensor::Arena& arena_;
  step::Updater* updater_;
  bool shares_module_;
  Memory memory_;
  std::int64_t iteration_ = 0, since_visit_ = 0, updates_ = 0;
  std::int64_t updates_before_ = 0;  // before the last minibatch
  bool refused_ = false;
};

}  // namespace paceline::central
