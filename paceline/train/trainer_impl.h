// What a Trainer consists of. Its parts are in trainer.cpp (the loop), trainer_evaluate.cpp, trainer_checkpoint.cpp and trainer_report.cpp.
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "paceline/observe/step_count.h"
#include "paceline/train/checkpointer.h"
#include "paceline/train/diagnose.h"
#include "paceline/train/feed.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/time_sheet.h"
#include "paceline/train/trainer.h"

namespace paceline::step {
class RecordedStep;
}

namespace paceline::train {

class StepMemory;

struct Trainer::Impl {
  Impl(const Recipe& recipe, const Environment& environment);
  ~Impl();

  observe::RunEnded run(const std::filesystem::path& folder);

  struct Score {
    double loss = observe::kUnknown, accuracy = observe::kUnknown;
    std::vector<observe::Measured> metrics = {};  // of a user's loss
  };

  int threads() const { return around_.threads > 0 ? around_.threads : static_cast<int>(recipe_.train.threads); }
  StagedModel make_shared_model() const;  // with the parts that each rank of the data axis owns; collective
  std::unique_ptr<Feed> make_training_feed() const;
  std::unique_ptr<Checkpointer> make_checkpointer() const;  // collective
  bool reads_batches() const { return !centralised_ || centralised_->reads_batches(); }
  std::int64_t minibatches() const { return centralised_ ? centralised_->workers() : 1; }  // per global batch
  std::int64_t batch_in(std::int64_t epoch) const;
  std::int64_t steps_in(std::int64_t epoch) const;
  std::int64_t count_steps() const;
  /// For a checkpoint or a hash: puts the state that the workers agree on into the module. If other processes hold parts of the state, they
  /// are asked what they hold, and the module gets its own part; null if there are none. Collective.
  std::shared_ptr<OtherParts> agree_on_state();
  std::vector<NamedTensor> own_model();  // what this worker holds of the model
  std::vector<NamedTensor> state();      // the same, for the whole state; collective
  void hash_state(observe::RunEnded& event);
  bool leads() const { return comm_->rank() == 0; }
  /// Whether this worker's sums count: those of one worker among those that computed the same samples, on the stage that has the loss.
  bool counts() const;
  std::optional<observe::Prediction> predicted() const;  // nullopt if it cannot be predicted
  observe::RunStarted started() const;
  observe::RunEnded ended(bool stopped);  // the results of the run; collective
  double settled_step() const;
  observe::Communication communication();
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  std::int64_t batches_done(const Checkpoint& checkpoint, const std::string& source) const;
  /// Loads the checkpoint into the module, and returns the rest, which belongs to the strategy.
  step::Resumed resume(const FoundCheckpoint& from);
  std::uint32_t vocabulary() const;              // a checksum; 0 if the data is not text
  void meet();                                   // waits until worker 0 has read and written the run's files so far
  bool train_epoch();                            // false: told to stop
  bool accepts(std::int64_t step, double loss);  // false: the step is left out of the sums
  void report();  // reads the sums of the last steps back from the device, adds them up over the workers and emits them
  void keep(const step::StepResult& result);  // keeps the sums of the latest step until they are reported
  void finish_steps();                        // report(), with what is still in flight as part of the latest step
  std::string blame();                        // describes the first fault that any worker has seen; collective
  /// `aside`: where this step's checkpoint was moved, if it was found to be bad.
  [[noreturn]] void give_up(const std::string& symptom, const std::string& where, const std::optional<std::filesystem::path>& aside = {});
  bool evaluation_due() const;   // at this position, and not done yet
  bool evaluate();               // false: interrupted by a request to stop
  std::optional<Score> score();  // the same
  bool records_evaluation() const;
  bool told_to_stop_at(std::int64_t batch);
  void look_into_test();
  bool evaluate_views();  // the same
  void recompute_statistics();
  void checkpoint(Nanoseconds began);  // `began`: when the checkpoint was decided; steps in flight may have to end first
  bool kept();                         // waits for the latest checkpoint, and returns whether there is one of this step; collective
  bool checkpoint_due();               // at this step, in the middle of an epoch
  bool epoch_checkpoint() const;       // at the end of this epoch
  bool finished() const;
  bool told_to_stop() const { return stopping_ || (comm_->size() == 1 && around_.stop.load(std::memory_order_relaxed)); }

  // In order of construction: each needs those before it.
  Environment around_;
  TimeSheet times_;
  std::unique_ptr<comm::Communicator> alone_;
  comm::Communicator* comm_;  // all workers
  Recipe recipe_;             // with the actual number of workers
  std::string recipe_text_, network_;
  comm::Mesh mesh_;  // of the workers; its data axis shares the batches
  Datasets own_datasets_;
  const Datasets* datasets_;
  StagedModel made_;
  std::shared_ptr<nn::Model> module_;  // the made one
  step::Context context_;              // of the strategy, and of evaluations
  std::shared_ptr<const nn::Loss> loss_;
  std::unique_ptr<step::Strategy> strategy_;
  step::Centralised* centralised_ = nullptr;  // the same object, if it computes for all workers; otherwise null
  std::unique_ptr<Feed> training_feed_, test_feed_, statistics_feed_;
  std::unique_ptr<step::RecordedStep> evaluation_;                     // of a batch
  at::Tensor evaluation_sums_;                                         // [loss, right answers, metrics] double, on the device
  std::unique_ptr<Checkpointer> checkpointer_;                         // of run(), in its folder
  Checkpointer::Wish checkpoint_wish_ = Checkpointer::Wish::at_epoch;  // worker 0's, as of the last report

  std::filesystem::path folder_;  // of the run
  std::int64_t total_steps_ = 0;
  Position position_;
  Score last_test_;
  std::vector<observe::EvaluatedView> views_;
  std::int64_t last_checkpoint_step_ = -1, evaluated_step_ = -1;
  std::int64_t first_step_ = 0;
  std::optional<observe::StepCount> steps_made_;  // of worker 0

  static constexpr std::int64_t kReportTogether = 25;  // steps
  // Steps that are not reported yet. On a GPU, their sums are read back together, so that steps do not wait for the host.
  struct Unreported {
    std::int64_t step = 0, epoch_step = 0, targets = 0, samples = 0;
    double rate = 0;
  };
  std::vector<Unreported> unreported_;
  Unreported latest_;                // step
  std::int64_t silent_samples_ = 0;  // samples of steps that ended before any worker finished a minibatch
  at::Tensor unreported_sums_;       // [kReportTogether, 2] double, on the device
  bool stopping_ = false;            // some worker was asked to stop
  std::int64_t refused_ = 0;         // consecutive steps whose loss was not finite
  double compute_s_ = 0;             // seconds of this worker in steps, without waiting for others
  step::Traffic traffic_before_;     // at the last report
  Nanoseconds reported_at_{0};
  double training_seconds_ = 0;                    // of this process
  std::deque<double> step_seconds_;                // of the last steps
  std::optional<observe::Prediction> prediction_;  // made before the first step; worker 0's
  StepMemory* memory_ = nullptr;                   // set during a run whose memory was predicted
  std::mutex fault_mutex_;
  std::optional<Fault> fault_;  // the first fault that this worker saw, before anything was updated with it
};

}  // namespace paceline::train
