// Strategies with a parameter server: a pair of an update rule and a consistency (ps/), carried out by one of three executors.
//
// To the Trainer such a strategy is one: it plays all workers by itself. A step is one worker's minibatch, handed to whoever may compute
// next, so that an epoch is every sample once, however fast each worker is.
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

  // Where workers share the Trainer's process, and a step is done when it returns.
  bool reads_batches() const override { return true; }
  step::StepResult finish() override { return {}; }
  bool wants_checkpoint() const override { return false; }

 protected:
  const step::Context& context() const { return context_; }
  const Settings& settings() const { return settings_; }
  const ps::PsConfig& ps() const { return settings_.ps; }
  nn::Model& module() const { return context_.model; }
  /// Whether the workers' own statistics can be shown.
  virtual bool knows_workers() const { return true; }

 private:
  step::Context context_;
  Settings settings_;
};

/// The strategy that `settings` describe. ConfigError where it cannot be.
std::unique_ptr<step::Strategy> make_central(const step::Context& context, const Settings& settings);

/// The executors: one thread plays all workers by a virtual clock, or as a recorded run had them; workers are threads; or processes.
std::unique_ptr<Central> make_virtual_executor(const step::Context& context, const Settings& settings);
std::unique_ptr<Central> make_replay_executor(const step::Context& context, const Settings& settings);
std::unique_ptr<Central> make_threads_executor(const step::Context& context, const Settings& settings);
std::unique_ptr<Central> make_processes_executor(const step::Context& context, const Settings& settings);

}  // namespace paceline::central
