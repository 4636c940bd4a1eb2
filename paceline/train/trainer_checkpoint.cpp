// The Trainer's checkpoints: what they contain, when they are written, and how a run resumes from one.
#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/train/trainer_impl.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

constexpr int kRollCalls = 8;  // a worker may leave at any time

}  // namespace

std::shared_ptr<OtherParts> Trainer::Impl::agree_on_state() {
  step::Holders* const holders = centralised_ ? centralised_->holders() : nullptr;
  if (!holders) {
    strategy_->agree();
    return nullptr;
  }
  for (int attempt = 1;; ++attempt) try {
      return std::make_shared<OtherParts>(*holders, holders->roll_call());
    } catch (const HolderGone&) {
      if (attempt == kRollCalls) throw;
    }
}

std::vector<NamedTensor> Trainer::Impl::own_model() {
  const step::Holders* const holders = centralised_ ? centralised_->holders() : nullptr;
  return holders ? model_tensors_in(*module_, holders->own_range()) : model_tensors(*module_, mesh_.data().rank());
}

std::vector<NamedTensor> Trainer::Impl::state() {
  std::vector<NamedTensor> tensors = own_model();
  for (NamedTensor& item : strategy_->save()) tensors.push_back(std::move(item));
  return mesh_.tensor().rank() == 0 ? tensors : sliced_alone(std::move(tensors), *module_);
}

// Inside an epoch the place is a number of batches, under a parameter server of one worker's minibatches. Where they have another size now,
// it must be a whole number of those; their samples must come in the same order.
std::int64_t Trainer::Impl::batches_done(const Checkpoint& checkpoint, const std::string& source) const {
  const Position& place = checkpoint.position;
  if (place.vocabulary != 0 && place.vocabulary != vocabulary())
    throw ConfigError(
        fmt::format("{} was trained on a text of other characters, and its tokens would mean others here; resume with that text, "
                    "or begin a new run",
                    source));
  if (place.batch == 0) return 0;
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
  check("data.held_out", saved.data.held_out, recipe_.data.held_out);
  check("train.seed", saved.train.seed, recipe_.train.seed);
  const auto samples = [&](const Recipe& recipe) { return minibatch_of(recipe, datasets_->training->size(), place.epoch); };
  const auto batches = [&](const Recipe& recipe) {
    return fmt::format("batches of {} samples (data.batch={}, strategy.name={}, parallel.workers={})", samples(recipe),
                       optim::batch_at(recipe.schedule, recipe.data.batch, place.epoch), recipe.strategy.name, recipe.parallel.workers);
  };
  const std::int64_t seen = place.batch * samples(saved);
  if (seen % samples(recipe_) != 0) refuse(batches(saved), batches(recipe_));
  if (const std::int64_t now = datasets_->training->size(); place.dataset_size > 0 && place.dataset_size != now)
    refuse(fmt::format("{} training samples of '{}'", place.dataset_size, saved.data.name), fmt::format("{} of them", now));
  return seen / samples(recipe_);
}

step::Resumed Trainer::Impl::resume(const FoundCheckpoint& from) {
  const auto& [place, checkpoint] = from;
  const std::string source = place.string();
  const std::int64_t batches = batches_done(checkpoint, source);
  std::vector<NamedTensor> model, rest;
  for (const NamedTensor& item : checkpoint.tensors) (item.name.starts_with(kModelPrefix) ? model : rest).push_back(item);
  restore(model, own_model(), source);  // all of it: there is no strategy yet, which might leave a part to other servers
  module_->refresh();
  position_ = checkpoint.position, position_.batch = batches;
  last_checkpoint_step_ = position_.step;
  return {.state = std::move(rest), .source = source};
}

std::unique_ptr<Checkpointer> Trainer::Impl::make_checkpointer() const {
  // The estimate until one has been written: parameters and two moments, divided among the workers that have the same part of the model, at
  // the speed of a slow disk's cache.
  constexpr double kCopies = 3, kBytesPerSecond = 5e8;
  const tensor::Arena& arena = module_->arena();
  const auto bytes = kCopies * static_cast<double>(arena.length() * 4) / static_cast<double>(mesh_.data().size());
  const Checkpointer::Settings settings{.share = recipe_.train.checkpoint_share,
                                        .guess = bytes / kBytesPerSecond,
                                        .keep = recipe_.train.keep,
                                        .writes = recipe_.train.checkpoints};
  return std::make_unique<Checkpointer>(*comm_, around_.bus, around_.clock, folder_, settings);
}

bool Trainer::Impl::checkpoint_due() {
  if (!recipe_.train.checkpoints) return false;
  if (centralised_ && centralised_->wants_checkpoint() && checkpointer_->wish() != Checkpointer::Wish::none) return true;
  const std::int64_t every = recipe_.train.checkpoint_every;
  return every > 0 ? position_.step % every == 0 : checkpoint_wish_ == Checkpointer::Wish::now;
}

// If the recipe sets an interval in steps, checkpoints at the ends of epochs are written as well.
bool Trainer::Impl::epoch_checkpoint() const {
  return recipe_.train.checkpoint_every > 0 || finished() || told_to_stop() || checkpoint_wish_ != Checkpointer::Wish::none;
}

void Trainer::Impl::checkpoint(Nanoseconds began) {
  if (!recipe_.train.checkpoints) {
    last_checkpoint_step_ = position_.step;
    return;
  }
  const auto pause = times_.enter(&observe::WallTime::checkpoints);
  // Before anything is saved: once the previous checkpoint is complete, what was kept for the one before it may be released.
  if (checkpointer_->finish() && centralised_ && !checkpointer_->last().empty())
    centralised_->checkpoint_complete([last = checkpointer_->last()] { return read_checkpoint(last, Check::structure).tensors; });
  const std::shared_ptr<OtherParts> others = agree_on_state();
  // The update after a finite loss may have overflowed; its result must not replace a good checkpoint.
  const std::string overflowed = fmt::format("the update of step {} overflowed", position_.step);
  const auto fault = bad_parameter(*module_, position_.step, mesh_.data().rank());
  if (comm_->size() > 1) {  // each worker has only checked its own part
    fault_ = fault;
    std::vector<std::int32_t> any = {fault ? 1 : 0};
    comm_->run(comm::allreduce(any, {.op = comm::ReduceOp::max, .deadline = comm::kUntilTheEnd}));
    if (any[0] > 0) give_up(overflowed, blame());
  }
  if (fault) give_up(overflowed, describe(*module_, *fault));
  if (others && others->fault()) give_up(overflowed, *others->fault());
  Position place = position_;
  place.dataset_size = datasets_->training->size(), place.vocabulary = vocabulary();
  checkpointer_->begin({place, recipe_text_, network_, datasets_->training->info().class_names}, state(), /*good=*/!evaluation_due(),
                       others);
  last_checkpoint_step_ = position_.step;
  checkpoint_wish_ = Checkpointer::Wish::none;
  strategy_->resume_training();
  const Nanoseconds ended = around_.clock.now();
  checkpointer_->paused(seconds(ended - began));
  if (around_.bus.wants_spans()) around_.bus.emit(observe::Span{"checkpoint", "run", comm_->rank(), began, ended});
  reported_at_ = ended;
}

void Trainer::Impl::hash_state(observe::RunEnded& event) {
  for (int attempt = 1;; ++attempt) try {
      const std::shared_ptr<OtherParts> others = agree_on_state();
      std::vector<NamedTensor> all = state();
      event.state_hash = others ? state_hash(all, *others) : state_hash(all, *comm_);
      std::erase_if(all, [](const NamedTensor& item) { return !item.name.starts_with(kModelPrefix); });
      event.parameters_hash = others ? state_hash(all, *others, kModelPrefix) : state_hash(all, *comm_);
      return strategy_->resume_training();
    } catch (const HolderGone&) {
      if (attempt == kRollCalls) throw;
    }
}

bool Trainer::Impl::kept() {
  if (!checkpointer_->finish()) last_checkpoint_step_ = -1;
  return last_checkpoint_step_ == position_.step;
}

}  // namespace paceline::train
