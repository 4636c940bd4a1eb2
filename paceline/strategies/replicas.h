// What all strategies share whose workers train replicas of their own and meet now and then: the local step, and the state of a replica.
//
// A meeting changes the replica's parameters; what the workers agree on, for an evaluation or a checkpoint, is the mean of the replicas
// unless a strategy has something better.
#pragma once

#include <string>

#include "paceline/data_parallel/statistics.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/recorded_step.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/registry.h"

namespace paceline::strategies {

class Replicas : public step::Strategy {
 public:
  /// `needs_host`: why its meetings need replicas in host memory; empty where they do not. ConfigError where it cannot be.
  Replicas(const StrategyConfig& config, const step::Context& context, const std::string& needs_host = {});

  step::StepResult step(const step::Batch& batch, const step::Point& point) override;
  void agree() override;
  void resume_training() override;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;
  step::Traffic traffic() const override { return traffic_; }

 protected:
  /// While the module has what all workers agree on: a strategy calls it when it is constructed, and load() calls it before a checkpoint's
  /// replicas are taken.
  virtual void prepare() {}
  /// After the worker's own update of step `point`.
  virtual void meet(const step::Point& point) = 0;
  /// The parameters become what is agreed on. Collective.
  virtual void agree_on_parameters() { average(parameters()); }
  /// Flat tensors of this worker that the next meeting depends on, each of any length.
  virtual std::vector<step::NamedTensor> memory() { return {}; }
  /// Whether the memory is about this worker's replica: then another number of workers begins without it, else with the mean of all.
  virtual bool remembers_replica() const { return false; }

  const StrategyConfig& config() const { return config_; }
  step::Context& context() { return context_; }
  const at::Tensor& parameters() { return context_.module.arena().parameters(); }  // [length]
  /// `flat` becomes its mean over the workers. Returns what this worker sent for it, which counts where it is part of training.
  std::int64_t average(const at::Tensor& flat);
  void count_bytes(std::int64_t sent) { traffic_.bytes_sent += sent, traffic_.bytes_plain += sent; }

 private:
  StrategyConfig config_;
  step::Context context_;
  step::LocalPass pass_;
  step::Updater updater_;
  data_parallel::WorkerStatistics statistics_;
  step::RecordedStep recorded_;
  at::Tensor sums_;
  at::Tensor own_;  // this worker's parameters, while the module has what was agreed on
  step::Traffic traffic_;
};

}  // namespace paceline::strategies
