// The trainer: epochs, evaluation, checkpoints, and telling everybody who listens. It contains no strategy's name.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "paceline/base/clock.h"
#include "paceline/observe/event.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/feed.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

class Trainer {
 public:
  struct Surroundings {
    observe::Bus& bus;
    const Clock& clock;
    const std::atomic<bool>& stop;  // set by a signal: checkpoint at the next step and leave
  };

  /// Builds datasets, module and strategy; everything that can be refused is refused here, before anything is written.
  Trainer(const Recipe& recipe, const Surroundings& surroundings);
  ~Trainer();

  /// Goes on from a checkpoint. ConfigError where this recipe does not fit it; then nothing has changed.
  void resume(const Checkpoint& checkpoint, const std::string& source);
  /// Trains to the end, or to the next step after `stop` was set; checkpoints go into the run's `folder`. Error where the loss is no longer
  /// a number, or where the run was stopped and no checkpoint could be written.
  observe::RunEnded run(const std::filesystem::path& folder);

  const graph::Graph& graph() const { return module_->graph(); }
  const data::Dataset& training_data() const { return *training_data_; }
  nn::GraphModule& module() { return *module_; }

 private:
  struct Score {
    double loss = observe::kUnknown, accuracy = observe::kUnknown;
  };

  std::int64_t steps_in(std::int64_t epoch) const;
  std::int64_t count_steps() const;
  std::vector<NamedTensor> state() const;
  void check_order_of_data(const Checkpoint& checkpoint, const std::string& source) const;
  bool train_epoch();  // false: told to stop
  void report();       // reads the sums of the last steps back and emits them
  [[noreturn]] void give_up(const std::string& symptom);
  Score evaluate(std::int64_t epoch);
  void checkpoint();
  bool finished() const;

  Recipe recipe_;
  std::string recipe_text_;
  Surroundings around_;
  std::filesystem::path folder_;  // of the run
  std::unique_ptr<data::Dataset> training_data_, test_data_;
  std::shared_ptr<nn::GraphModule> module_;
  std::unique_ptr<strategies::Strategy> strategy_;
  std::unique_ptr<Feed> training_feed_, test_feed_;

  std::int64_t total_steps_ = 0;
  Position position_;
  Score last_test_;
  std::int64_t last_checkpoint_step_ = -1, evaluated_step_ = -1;
  std::int64_t samples_at_start_ = 0;

  // Steps not yet reported. On a GPU their sums are read back together, so that steps do not wait for the host.
  struct Unreported {
    std::int64_t step = 0, targets = 0, samples = 0;
    double rate = 0;
  };
  std::vector<Unreported> unreported_;
  at::Tensor unreported_sums_;  // [kReportEvery, 2] double, on the device
  Nanoseconds reported_at_{0};
  double training_seconds_ = 0;  // of this process
  strategies::Batch last_batch_;
};

}  // namespace paceline::train
