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
  StagedModel make_shared_model() const;  // with what each of the data axis owns; collective
  std::unique_ptr<Feed> make_training_feed() const;
  std::unique_ptr<Checkpointer> make_checkpointer() const;  // collective
  bool reads_batches() const { return !centralised_ || centralised_->reads_batches(); }
  std::int64_t minibatches() const { return centralised_ ? centralised_->workers() : 1; }  // that a global batch comes in
  std::int64_t batch_in(std::int64_t epoch) const;
  std::int64_t steps_in(std::int64_t epoch) const;
  std::int64_t count_steps() const;
  /// For a checkpoint or a hash: the module becomes what the workers agree on, or, where other processes hold parts of the state, its own
  /// part does. Those are asked what they hold; null if there are none. Collective.
  std::shared_ptr<OtherParts> agree_on_state();
  std::vector<NamedTensor> own_model();  // what this worker holds of the model
  std::vector<NamedTensor> state();      // and of all the rest; collective
  void hash_state(observe::RunEnded& event);
  bool leads() const { return comm_->rank() == 0; }
  /// Whether this worker's sums are counted: of the workers that computed the same samples, one's are, on the stage that has the loss.
  bool counts() const;
  std::optional<observe::Prediction> predicted() const;  // nothing if it cannot be predicted
  observe::RunStarted started() const;
  observe::RunEnded ended(bool stopped);  // what the run came to; collective
  double settled_step() const;
  observe::Communication communication();
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  std::int64_t batches_done(const Checkpoint& checkpoint, const std::string& source) const;
  /// The module becomes the checkpoint's; returns the rest, which is the strategy's.
  step::Resumed resume(const FoundCheckpoint& from);
  std::uint32_t vocabulary() const;              // a checksum; 0 where the data is no text
  void meet();                                   // waits until worker 0 has read and written what the run has so far
  bool train_epoch();                            // false: told to stop
  bool accepts(std::int64_t step, double loss);  // false: a step to be left out
  void report();                                 // reads the sums of the last steps back, adds them up over the workers and emits them
  void keep(const step::StepResult& result);     // of the latest step, until it is reported
  void finish_steps();                           // report(), with what is still in flight as part of the latest step
  std::string blame();                           // the first fault that any worker has seen; collective
  /// `aside`: where the checkpoint of this step is, if it was found not to be good.
  [[noreturn]] void give_up(const std::string& symptom, const std::string& where, const std::optional<std::filesystem::path>& aside = {});
  bool evaluation_due() const;   // at this place, and not yet made
  bool evaluate();               // false: told to stop before it was done
  std::optional<Score> score();  // the same
  bool records_evaluation() const;
  bool told_to_stop_at(std::int64_t batch);
  void look_into_test();
  bool evaluate_views();  // the same
  void recompute_statistics();
  void checkpoint(Nanoseconds began);  // when it was decided: what is in flight may have to end first
  bool kept();                         // waits for the latest checkpoint: whether there is one of this step; collective
  bool checkpoint_due();               // at this step, in the middle of an epoch
  bool epoch_checkpoint() const;       // at the end of this epoch
  bool finished() const;
  bool told_to_stop() const { return stopping_ || (comm_->size() == 1 && around_.stop.load(std::memory_order_relaxed)); }

  // In the order in which they are made: each needs those before it.
  Environment around_;
  TimeSheet times_;
  std::unique_ptr<comm::Communicator> alone_;
  comm::Communicator* comm_;  // all workers
  Recipe recipe_;             // for the workers that there are
  std::string recipe_text_, network_;
  comm::Mesh mesh_;  // of the workers; its data axis shares the batches
  Datasets own_datasets_;
  const Datasets* datasets_;
  StagedModel made_;
  std::shared_ptr<nn::Model> module_;  // the made one
  step::Context context_;              // of the strategy, and of evaluations
  std::shared_ptr<const nn::Loss> loss_;
  std::unique_ptr<step::Strategy> strategy_;
  step::Centralised* centralised_ = nullptr;  // the same, if it computes for all workers; else null
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
  // Steps not yet reported. On a GPU their sums are read back together, so that steps do not wait for the host.
  struct Unreported {
    std::int64_t step = 0, epoch_step = 0, targets = 0, samples = 0;
    double rate = 0;
  };
  std::vector<Unreported> unreported_;
  Unreported latest_;                // step
  std::int64_t silent_samples_ = 0;  // of steps that ended before anything was finished
  at::Tensor unreported_sums_;       // [kReportTogether, 2] double, on the device
  bool stopping_ = false;            // some worker was told to
  std::int64_t refused_ = 0;         // steps in a row whose loss was not a number
  double compute_s_ = 0;             // of this worker: in steps, without waiting for others
  step::Traffic traffic_before_;     // at the last report
  Nanoseconds reported_at_{0};
  double training_seconds_ = 0;                    // of this process
  std::deque<double> step_seconds_;                // of the last steps
  std::optional<observe::Prediction> prediction_;  // made before the first step; worker 0's
  StepMemory* memory_ = nullptr;                   // while it runs, where memory was predicted
  std::mutex fault_mutex_;
  std::optional<Fault> fault_;  // that this worker saw, before anything was updated with it
};

}  // namespace paceline::train
