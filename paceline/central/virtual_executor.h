// Workers under a virtual clock: one thread computes for all of them in the order of their events, on one module.
//
// A worker's gradient is computed at the moment at which it pulls, on the server's parameters in place, and kept until its push is due. So
// M workers need the memory of M gradients and hardly any extra time: no parameters are copied, and the module is recorded once on a GPU.
// If a rule sends workers something other than the parameters (dana), or workers make local steps (downpour, easgd, ps.optimizer=worker),
// the parameters are copied.
//
//   request ─ granted: pull, compute ─ report (loss, statistics → factor) ─ push ─ request …
//
// The order of events is a function of the recipe and the seed: ties go to the event that was scheduled first. Or it is that of a recorded
// run (replay_executor.cpp).
#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <utility>

#include "paceline/base/event_loop.h"
#include "paceline/central/central.h"
#include "paceline/central/local_worker.h"
#include "paceline/central/server_tensors.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/recorded_step.h"
#include "paceline/tensor/read_back.h"

namespace paceline::central {

enum class Phase : std::int64_t { computing, pushing, waiting };

/// One worker.
struct Player {
  explicit Player(LocalWorker worker) : local(std::move(worker)) {}

  Phase phase = Phase::waiting;
  std::int64_t targets = 1;  // of its batch
  ps::Iteration times;
  Nanoseconds ahead{0};  // time spent on local steps since its last visit
  double t_comp_s = 0;   // of its second-last gradient
  double loss = 0;
  bool finite = true;         // whether the next push is finite, as far as is known
  float scale = 1, rate = 0;  // from the server's advice; the schedule's rate when it got its batch
  tensor::ReadBack sums;
  LocalWorker local;
};

class VirtualExecutor : public Central {
 public:
  VirtualExecutor(const step::Context& given, const Settings& given_settings);

  step::StepResult step(const step::Batch& batch, const step::Point& point) override;
  void show(const std::string& view) override;
  void resume_training() override;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;
  observe::Served served() const override;

 protected:
  ps::Server& server() { return server_; }
  Player& player(int worker) { return players_[static_cast<std::size_t>(worker)]; }
  /// One actor per worker: its next report or push.
  EventLoop& loop() { return loop_; }
  const at::Tensor& sums() const { return sums_; }  // of the last minibatch

  /// Computes one minibatch of a worker, after a pull if that is due. Returns true if it reports and pushes next.
  bool compute(int worker, const step::Batch& batch, const step::Point& point);
  void report(int worker);
  /// Its push was applied or refused; the worker now waits.
  void push(int worker);

 private:
  /// Processes everything before the next minibatch; while a GPU computes, a step leaves some of it for later.
  void catch_up();
  const at::Tensor& parameters() const { return module().arena().parameters(); }
  const at::Tensor& gradients() const { return module().arena().gradients(); }
  ServerTensors tensors() { return {server_, module().device()}; }
  bool on_cpu() const { return module().device().is_cpu(); }
  Nanoseconds predictors() const { return Nanoseconds(duties_.advised ? std::llround(settings().timing.predictor_ms * 1e6) : 0); }
  /// How long a worker waits for advice before it computes its gradient; 0 if the rule gives none.
  Nanoseconds answer(const ps::Iteration& times) const { return duties_.advised ? times.report + predictors() : Nanoseconds(0); }
  std::int64_t bytes() const { return parameters().numel() * 4; }

  void start_over(std::span<const step::NamedTensor> state);
  void show_statistics(const std::string& view);
  bool loss_pending() const;
  void plan(int worker, Phase phase, Nanoseconds after);
  void plan_visit(int worker, bool reports, bool visits);
  /// No event is scheduled for this worker.
  void wait(int worker);
  void next_event();
  void grant_after(int worker);

  Duties duties_;
  step::LocalPass pass_;
  step::RecordedStep recorded_;
  NormReports norms_;
  std::unique_ptr<ps::Timing> timing_;
  bool apart_;  // the module has parameters of its own, not the server's
  ps::Server server_;
  std::unique_ptr<step::Updater> updater_;  // null unless duties_.optimizes()
  std::vector<Player> players_;
  std::deque<std::size_t> ready_;  // may pull now
  EventLoop loop_;
  Nanoseconds busy_{0};
  std::int64_t iterations_ = 0;  // over all workers, which took `busy_`
  std::int64_t newest_ = -1;
  bool shown_ = false;
  at::Tensor sums_;
};

}  // namespace paceline::central
