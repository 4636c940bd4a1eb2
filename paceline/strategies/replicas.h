// What is common to all strategies whose workers train replicas and meet at intervals: local steps, and the state of a replica. They differ
// in their Meeting (data_parallel/meeting.h).
#pragma once

#include <memory>
#include <string>

#include "paceline/data_parallel/meeting.h"
#include "paceline/data_parallel/norm_statistics.h"
#include "paceline/schedule/program_writer.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/recorded_step.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/stream_timer.h"

namespace paceline::strategies {

/// What a meeting of this run's workers needs. `needs_host`: why replicas must be in host memory; empty if they need not be. Throws
/// ConfigError, before anything is created, if replicas cannot be trained that way.
data_parallel::MeetingSetup meeting_setup(const StrategyConfig& config, const step::Context& context, const std::string& needs_host = {});

/// The same for meetings in which workers send to one another at the same time, which NCCL does not support.
data_parallel::MeetingSetup messages_setup(const StrategyConfig& config, const step::Context& context);

/// Adds the actions of a meeting of replicas of this many elements.
using WriteMeeting = void (*)(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements);
/// The program of a step at which replicas meet.
std::vector<schedule::Program> replicas_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings,
                                                WriteMeeting meeting);
/// Meetings in which this many elements are sent to one neighbour while as many arrive from another. Neighbours change from step to
/// step; here the receiver is always the next worker.
void write_swap(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements);
/// Meetings that average a buffer of the replica's length.
void write_average(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements);

class Replicas final : public step::Strategy {
 public:
  Replicas(const StrategyConfig& config, const step::Context& context, std::unique_ptr<data_parallel::Meeting> meeting);

  step::StepResult step(const step::Batch& batch, const step::Point& point) override;
  void agree() override;
  void resume_training() override;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;
  step::Traffic traffic() const override {
    step::Traffic traffic = pass_.traffic() += traffic_;
    return traffic += {.exposed_s = on_stream_.seconds(), .communication_s = on_stream_.seconds()};
  }

 private:
  at::Tensor parameters() { return context_.model.arena().parameters(); }  // [length]

  step::Context context_;
  step::LocalPass pass_;
  step::Updater updater_;
  data_parallel::WorkerStatistics statistics_;
  step::RecordedStep recorded_;
  // This worker's own parameters and moments, while the module and the updater hold the agreed ones.
  at::Tensor own_;
  std::vector<at::Tensor> own_moments_;
  step::Traffic traffic_;
  tensor::StreamTimer on_stream_;  // meetings on a GPU
  std::unique_ptr<data_parallel::Meeting> meeting_;
};

}  // namespace paceline::strategies
