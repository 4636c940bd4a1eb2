// The Trainer's half that keeps checkpoints: what goes into one, when it is written, and how a run goes on from it.
#include <ATen/ATen.h>

#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/train/trainer.h"
#include "paceline/train/weights.h"

namespace paceline::train {

std::vector<NamedTensor> Trainer::state() {
  std::vector<NamedTensor> tensors = model_tensors(*module_);
  for (NamedTensor& item : strategy_->save()) tensors.push_back(std::move(item));
  return tensors;
}

// Inside an epoch the place is a number of batches: it means the same samples only where batches and their order are those of the
// checkpoint. Under a parameter server they are one worker's minibatches.
void Trainer::check_data(const Checkpoint& checkpoint, const std::string& source) const {
  const Position& place = checkpoint.position;
  if (place.vocabulary != 0 && place.vocabulary != vocabulary())
    throw ConfigError(
        fmt::format("{} was trained on a text of other characters, and its tokens would mean others here; resume with that text, "
                    "or begin a new run",
                    source));
  if (place.batch == 0) return;
  Recipe saved;
  saved.config().load_text(checkpoint.recipe, source);
  const auto refuse = [&](const std::string& was, const std::string& is) {
    throw ConfigError(
        fmt::format("{} stands behind batch {} of epoch {} with {}, which {} would make another place in the data; "
                    "resume with the same, or from a checkpoint at the end of an epoch",
                    source, place.batch, place.epoch + 1, was, is));
  };
  const auto check = [&](const char* key, const auto& was, const auto& is) {
    if (was != is) refuse(fmt::format("{}={}", key, was), fmt::format("{}={}", key, is));
  };
  check("data.name", saved.data.name, recipe_.data.name);
  check("data.train_samples", saved.data.train_samples, recipe_.data.train_samples);
  check("train.seed", saved.train.seed, recipe_.train.seed);
  const auto samples = [&](const Recipe& recipe) { return minibatch_of(recipe, datasets_->training->size(), place.epoch); };
  const auto batches = [&](const Recipe& recipe) {
    return fmt::format("batches of {} samples (data.batch={}, strategy.name={}, parallel.workers={})", samples(recipe),
                       optim::batch_at(recipe.schedule, recipe.data.batch, place.epoch), recipe.strategy.name, recipe.parallel.workers);
  };
  if (samples(saved) != samples(recipe_)) refuse(batches(saved), batches(recipe_));
  if (const std::int64_t now = datasets_->training->size(); place.dataset_size > 0 && place.dataset_size != now)
    refuse(fmt::format("{} training samples of '{}'", place.dataset_size, saved.data.name), fmt::format("{} of them", now));
}

void Trainer::resume(const Checkpoint& checkpoint, const std::string& source) {
  check_data(checkpoint, source);
  const std::vector<NamedTensor> targets = model_tensors(*module_);
  std::vector<NamedTensor> model, rest;
  for (const NamedTensor& item : checkpoint.tensors) (item.name.starts_with(kModelPrefix) ? model : rest).push_back(item);
  std::vector<NamedTensor> before;
  before.reserve(targets.size());
  for (const NamedTensor& item : targets) before.push_back({item.name, item.tensor.clone()});
  restore(model, targets, source);  // first: what a strategy keeps for each worker lies over it
  try {
    strategy_->load(rest);
  } catch (const ConfigError& problem) {
    restore(before, targets, source);
    throw ConfigError(fmt::format("{} does not fit: {}", source, problem.what()));
  }
  module_->refresh();
  position_ = checkpoint.position;
  total_steps_ = count_steps();
  last_checkpoint_step_ = position_.step;
}

// A disk that is full must not end a run: the last good checkpoint stays and training goes on, with an alarm.
void Trainer::checkpoint() {
  if (!recipe_.train.checkpoints) {
    last_checkpoint_step_ = position_.step;
    return;
  }
  const Nanoseconds began = around_.clock.now();
  strategy_->agree();
  // The update after a finite loss may have overflowed; what it left must not take the place of a good checkpoint.
  if (const auto fault = bad_parameter(*module_, position_.step))
    give_up(fmt::format("the update of step {} overflowed", position_.step), describe(*module_, *fault));
  const std::vector<NamedTensor> tensors = state();
  Position place = position_;
  place.dataset_size = datasets_->training->size(), place.vocabulary = vocabulary();
  std::vector<std::int32_t> written = {leads() ? write({place, recipe_text_, network_, tensors}, began) : 0};
  if (comm_->size() > 1) comm_->run(comm::broadcast(written, {.deadline = comm::kUntilTheEnd}));  // a disk may be slow
  if (written[0]) last_checkpoint_step_ = position_.step;
  strategy_->resume_training();
  if (around_.bus.wants_spans()) around_.bus.emit(observe::Span{"checkpoint", "run", comm_->rank(), began, around_.clock.now()});
  reported_at_ = around_.clock.now();
}

bool Trainer::write(const Checkpoint& checkpoint, Nanoseconds began) {
  const auto file = checkpoint_file(checkpoints(), position_.step);
  try {
    std::filesystem::create_directories(checkpoints());
    const FileStamp stamp = write_checkpoint(file, checkpoint);
    if (!evaluation_due()) prune_checkpoints(file, recipe_.train.keep);  // else when it is known to be good
    around_.bus.emit(observe::CheckpointWritten{position_.step, file.string(), stamp.bytes, around_.clock.now() - began});
    return true;
  } catch (const std::exception& problem) {
    // At the end of a run it is tried again, and need not be said again.
    if (std::exchange(alarmed_step_, position_.step) != position_.step)
      log::error("no checkpoint at step {}: {}; training goes on", position_.step, problem.what());
    return false;
  }
}

}  // namespace paceline::train
