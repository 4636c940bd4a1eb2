// Strategies with a parameter server: a pair of an update rule and a consistency (ps/), run by one of its executors (virtual clock, replay,
// threads, processes).
//
// To the Trainer such a strategy looks like a single worker. A step is one worker's minibatch, assigned to the worker that may compute
// next, so that an epoch uses every sample once, however fast each worker is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paceline/central/settings.h"
#include "paceline/step/strategy.h"

namespace paceline::central {

/// What the executors share.
class Central : public step::Strategy, public step::Centralised {
 public:
  Central(const step::Context& context, const Settings& settings) : context_(context), settings_(settings) {}

  step::Centralised* centralised() final { return this; }
  int workers() const final { return settings_.workers; }
  void agree() final { show(settings_.ps.statistics); }
  std::vector<std::string> views() const final;

  // For workers in the Trainer's process: a step is complete when it returns.
  bool reads_batches() const override { return true; }
  step::StepResult finish() override { return {}; }
  bool wants_checkpoint() const override { return false; }

 protected:
  const step::Context& context() const { return context_; }
  const Settings& settings() const { return settings_; }
  const ps::PsConfig& ps() const { return settings_.ps; }
  nn::Model& module() const { return context_.model; }
  /// Whether the workers' own statistics are available.
  virtual bool knows_workers() const { return true; }

 private:
  step::Context context_;
  Settings settings_;
};

/// Creates the strategy that `settings` describe. `resumed`: the state that it continues from; null in a new run. ConfigError if it is
/// impossible.
std::unique_ptr<step::Strategy> make_central(const step::Context& context, const Settings& settings,
                                             const step::Resumed* resumed = nullptr);

/// The executors: one thread computes for all workers, by a virtual clock or in the order of a recorded run; workers are threads; or
/// processes, which are served from the moment at which the executor exists.
std::unique_ptr<Central> make_virtual_executor(const step::Context& context, const Settings& settings);
std::unique_ptr<Central> make_replay_executor(const step::Context& context, const Settings& settings);
std::unique_ptr<Central> make_threads_executor(const step::Context& context, const Settings& settings);
std::unique_ptr<Central> make_processes_executor(const step::Context& context, const Settings& settings, const step::Resumed* resumed);

}  // namespace paceline::central
