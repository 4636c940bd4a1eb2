// What all strategies share whose workers train replicas of their own and meet now and then: the local step, and the state of a replica.
// They differ in their Meeting (data_parallel/meeting.h).
#pragma once

#include <memory>
#include <string>

#include "paceline/data_parallel/meeting.h"
#include "paceline/data_parallel/statistics.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/recorded_step.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/registry.h"

namespace paceline::strategies {

/// What a meeting of this run's workers works with. `needs_host`: why replicas must lie in host memory; empty where they need not.
/// ConfigError where replicas cannot be trained like that, before anything is made.
data_parallel::MeetingSetup meeting_setup(const StrategyConfig& config, const step::Context& context, const std::string& needs_host = {});

class Replicas final : public step::Strategy {
 public:
  Replicas(const StrategyConfig& config, const step::Context& context, std::unique_ptr<data_parallel::Meeting> meeting);

  step::StepResult step(const step::Batch& batch, const step::Point& point) override;
  void agree() override;
  void resume_training() override;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;
  step::Traffic traffic() const override { return pass_.traffic() += traffic_; }
  bool lockstep() const override { return meeting_->lockstep(); }

 private:
  at::Tensor parameters() { return context_.model.arena().parameters(); }  // [length]

  step::Context context_;
  step::LocalPass pass_;
  step::Updater updater_;
  data_parallel::WorkerStatistics statistics_;
  step::RecordedStep recorded_;
  at::Tensor sums_;
  at::Tensor own_;  // this worker's parameters, while the module has what was agreed on
  step::Traffic traffic_;
  std::unique_ptr<data_parallel::Meeting> meeting_;
};

}  // namespace paceline::strategies
