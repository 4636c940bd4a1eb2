#include "paceline/train/trainer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/nn/loss.h"
#include "paceline/tensor/recorded.h"
#include "paceline/train/diagnose.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

constexpr std::int64_t kReportEveryOnGpu = 25;

data::LoaderOptions loader_options(const Recipe& recipe, data::Split split) {
  data::LoaderOptions options;
  options.batch = recipe.data.batch;
  options.seed = static_cast<std::uint64_t>(recipe.train.seed);
  options.shuffle = options.augment = split == data::Split::train;
  options.augment = options.augment && recipe.data.augment;
  options.drop_last = split == data::Split::train && recipe.data.drop_last;
  return options;
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, const Surroundings& around) : recipe_(recipe), around_(around) {
  validate(recipe_);
  recipe_text_ = recipe_.config().toml();
  const auto seed = static_cast<std::uint64_t>(recipe_.train.seed);
  const c10::Device device = tensor::parse_device(recipe_.train.device);
  const tensor::Precision precision = tensor::parse_precision(recipe_.train.precision, device);
  tensor::configure_libtorch(device, precision, static_cast<int>(recipe_.train.threads), recipe_.train.repeatable);

  training_data_ = data::make_dataset(recipe_.data, data::Split::train, seed);
  test_data_ = data::make_dataset(recipe_.data, data::Split::test, seed);
  if (training_data_->size() < recipe_.data.batch && recipe_.data.drop_last)
    throw ConfigError(fmt::format("data.batch={} is more than the {} training samples of '{}'; use a smaller batch", recipe_.data.batch,
                                  training_data_->size(), recipe_.data.name));

  nn::GraphModule::Options options;
  options.device = device;
  options.precision = precision;
  options.seed = seed;
  module_ = std::make_shared<nn::GraphModule>(graph_for(recipe_.model, training_data_->info()), options);
  if (!recipe_.model.weights.empty()) load_weights(*module_, recipe_.model.weights);

  strategy_ = strategies::make_strategy(recipe_.strategy);
  strategy_->setup({.module = *module_,
                    .optim = recipe_.optim,
                    .bus = around_.bus,
                    .clock = around_.clock,
                    .seed = seed,
                    .label_smoothing = recipe_.train.label_smoothing,
                    .micro_batches = recipe_.train.micro_batches,
                    .record_steps = recipe_.train.record_steps});
  training_feed_ = make_feed(*training_data_, loader_options(recipe_, data::Split::train), recipe_.data, *module_);
  test_feed_ = make_feed(*test_data_, loader_options(recipe_, data::Split::test), recipe_.data, *module_);
  total_steps_ = count_steps();
}

Trainer::~Trainer() = default;

std::int64_t Trainer::steps_in(std::int64_t epoch) const {
  const std::int64_t size = training_data_->size();
  const std::int64_t batch = std::min(size, optim::batch_at(recipe_.schedule, recipe_.data.batch, epoch));
  return recipe_.data.drop_last ? size / batch : (size + batch - 1) / batch;
}

std::int64_t Trainer::count_steps() const {
  // After its last milestone the batch stays as it is; a run that is limited by train.steps may have any number of epochs. Epochs that are
  // done count as they were: a resumed run may have had other batches.
  const std::int64_t done = position_.epoch, epochs = std::max(done, recipe_.train.epochs);
  const auto& milestones = recipe_.schedule.batch_milestones;
  const double last = milestones.empty() ? 0 : std::min(std::ceil(milestones.back()), static_cast<double>(epochs));
  const std::int64_t settled = std::max(done, static_cast<std::int64_t>(last));
  std::int64_t steps = position_.step - position_.batch + (epochs - settled) * steps_in(settled);
  for (std::int64_t epoch = done; epoch < settled; ++epoch) steps += steps_in(epoch);
  return recipe_.train.steps > 0 ? std::min(steps, recipe_.train.steps) : steps;
}

std::vector<NamedTensor> Trainer::state() const {
  std::vector<NamedTensor> tensors = model_tensors(*module_);
  for (NamedTensor& item : strategy_->save()) tensors.push_back(std::move(item));
  return tensors;
}

// Inside an epoch the place is a number of batches: it means the same samples only where batches and their order are those of the
// checkpoint.
void Trainer::check_order_of_data(const Checkpoint& checkpoint, const std::string& source) const {
  const Position& place = checkpoint.position;
  if (place.batch == 0) return;
  Recipe saved;
  saved.config().load_text(checkpoint.recipe, source);
  const auto check = [&](const char* key, const auto& was, const auto& is) {
    if (was == is) return;
    throw ConfigError(
        fmt::format("{} stands behind batch {} of epoch {} with {}={}, which {}={} would make another place in the data; "
                    "resume with the same, or from a checkpoint at the end of an epoch",
                    source, place.batch, place.epoch + 1, key, was, key, is));
  };
  const auto batch = [&](const Recipe& recipe) { return optim::batch_at(recipe.schedule, recipe.data.batch, place.epoch); };
  check("data.batch", batch(saved), batch(recipe_));
  check("data.name", saved.data.name, recipe_.data.name);
  check("data.train_samples", saved.data.train_samples, recipe_.data.train_samples);
  check("train.seed", saved.train.seed, recipe_.train.seed);
}

void Trainer::resume(const Checkpoint& checkpoint, const std::string& source) {
  check_order_of_data(checkpoint, source);
  std::vector<NamedTensor> targets = model_tensors(*module_);
  const std::vector<NamedTensor> strategys = strategy_->save();
  targets.insert(targets.end(), strategys.begin(), strategys.end());
  restore(checkpoint.tensors, targets, source);
  strategy_->load(strategys);
  module_->refresh();
  position_ = checkpoint.position;
  total_steps_ = count_steps();
  last_checkpoint_step_ = position_.step;
}

bool Trainer::finished() const { return position_.epoch >= recipe_.train.epochs || position_.step >= total_steps_; }

observe::RunEnded Trainer::run(const std::filesystem::path& folder) {
  folder_ = folder;
  const tensor::OwnStream stream(module_->device());
  const data::Info& info = training_data_->info();
  observe::RunStarted started;
  started.run = folder_.string();
  started.network = module_->graph().network();
  started.dataset = info.key;
  started.optimizer = recipe_.optim.name;
  started.strategy = recipe_.strategy.name;
  started.device = tensor::device_name(module_->device());
  started.precision = recipe_.train.precision;
  started.parameters = module_->arena().count();
  started.macs = module_->graph().macs();
  started.train_samples = training_data_->size();
  started.test_samples = test_data_->size();
  started.batch = recipe_.data.batch;
  started.per_token = info.tokens;
  started.epochs = recipe_.train.epochs;
  started.steps_per_epoch = steps_in(0);
  started.workers = static_cast<int>(recipe_.parallel.workers);
  started.first_step = position_.step;
  around_.bus.emit(started);

  samples_at_start_ = position_.samples;
  bool stopped = false;
  while (!finished() && !stopped) stopped = !train_epoch();
  if (!stopped && evaluated_step_ != position_.step) evaluate(position_.epoch);
  if (last_checkpoint_step_ != position_.step) checkpoint();
  if (stopped && last_checkpoint_step_ != position_.step)
    throw Error(fmt::format("stopped on request at step {}, but no checkpoint could be written in {}", position_.step, folder_.string()));

  observe::RunEnded ended;
  ended.workers = started.workers;
  ended.steps = position_.step;
  ended.epochs = position_.epoch;
  ended.samples = position_.samples;
  ended.seconds = position_.seconds;
  ended.samples_per_s = training_seconds_ > 0 ? static_cast<double>(position_.samples - samples_at_start_) / training_seconds_ : 0;
  ended.train_loss = position_.mean_loss();
  ended.test_loss = last_test_.loss;
  ended.test_accuracy = last_test_.accuracy;
  ended.state_hash = state_hash(state());
  ended.run = folder_.string();
  if (stopped) ended.stopped = "on request";
  around_.bus.emit(ended);
  return ended;
}

bool Trainer::train_epoch() {
  const std::int64_t epoch = position_.epoch, steps = steps_in(epoch);
  const std::int64_t batch = std::min(training_data_->size(), optim::batch_at(recipe_.schedule, recipe_.data.batch, epoch));
  const Nanoseconds began = around_.clock.now();
  const std::int64_t samples_before = position_.samples;
  if (position_.batch == 0) position_.loss_sum = position_.right = 0, position_.targets = 0;
  const std::int64_t report_every = module_->device().is_cpu() ? 1 : kReportEveryOnGpu;
  training_feed_->start(epoch, batch, position_.batch);
  reported_at_ = began;
  while (position_.batch < steps && position_.step < total_steps_) {
    const std::optional<strategies::Batch> next = training_feed_->next();
    ensure(next.has_value(), "an epoch has as many batches as the sampler says");
    last_batch_ = *next;
    const optim::Progress progress{.epoch = static_cast<double>(epoch) + static_cast<double>(position_.batch) / static_cast<double>(steps),
                                   .epochs = static_cast<double>(recipe_.train.epochs)};
    const strategies::Point point{.step = position_.step + 1,
                                  .rate = optim::learning_rate(recipe_.schedule, recipe_.optim.rate, recipe_.data.batch, progress)};
    const strategies::StepResult result = strategy_->step(last_batch_, point);

    if (!unreported_sums_.defined()) unreported_sums_ = at::zeros({kReportEveryOnGpu, 2}, result.sums.options());
    unreported_sums_[static_cast<std::int64_t>(unreported_.size())].copy_(result.sums);
    const std::int64_t samples = last_batch_.inputs.size(0);
    unreported_.push_back({point.step, result.targets, samples, point.rate});
    ++position_.step, ++position_.batch, position_.samples += samples;
    if (static_cast<std::int64_t>(unreported_.size()) >= report_every) report();

    const bool stop = around_.stop.load(std::memory_order_relaxed);
    const bool due = recipe_.train.checkpoint_every > 0 && position_.step % recipe_.train.checkpoint_every == 0;
    if ((stop || due) && position_.batch < steps) {  // the end of the epoch has a checkpoint of its own
      report();
      checkpoint();
    }
    if (stop && position_.batch < steps) return false;
  }
  report();
  observe::EpochDone done{.epoch = epoch + 1,
                          .epochs = recipe_.train.epochs,
                          .train_loss = position_.mean_loss(),
                          .train_accuracy = position_.mean_right(),
                          .duration = around_.clock.now() - began,
                          .samples = position_.samples - samples_before};
  const bool whole = position_.batch >= steps;  // false: train.steps ended the run inside the epoch
  if (whole) {
    ++position_.epoch;
    position_.batch = 0;
    around_.bus.emit(done);
    const double every = recipe_.train.evaluate_every;
    const bool evaluation_due =
        every > 0 && std::floor(static_cast<double>(epoch + 1) / every) > std::floor(static_cast<double>(epoch) / every);
    if (evaluation_due || position_.epoch >= recipe_.train.epochs) evaluate(epoch + 1);
    checkpoint();
  }
  return !around_.stop.load(std::memory_order_relaxed) || finished();
}

void Trainer::report() {
  if (unreported_.empty()) return;
  const at::Tensor sums = unreported_sums_.cpu();  // on a GPU this waits for the steps
  const auto rows = sums.accessor<double, 2>();
  const Nanoseconds now = around_.clock.now(), each = (now - reported_at_) / static_cast<std::int64_t>(unreported_.size());
  training_seconds_ += seconds(now - reported_at_);
  position_.seconds += seconds(now - reported_at_);
  reported_at_ = now;
  for (std::size_t i = 0; i < unreported_.size(); ++i) {
    const Unreported& step = unreported_[i];
    const double loss = rows[static_cast<std::int64_t>(i)][0], right = rows[static_cast<std::int64_t>(i)][1];
    if (!std::isfinite(loss)) give_up(fmt::format("the loss is {} at step {}", loss, step.step));
    position_.loss_sum += loss, position_.right += right, position_.targets += step.targets;
    const auto targets = static_cast<double>(step.targets);
    observe::StepDone done;
    done.step = step.step, done.steps = total_steps_, done.epoch = position_.epoch + 1, done.samples = step.samples;
    done.loss = loss / targets, done.accuracy = right / targets, done.rate = step.rate, done.duration = each;
    around_.bus.emit(done);
  }
  unreported_.clear();
}

void Trainer::give_up(const std::string& symptom) {
  const std::string where = first_not_finite(*module_, last_batch_.inputs);
  const auto kept = list_checkpoints(folder_);
  throw Error(
      fmt::format("{}: {}; lower optim.rate, add warm-up or optim.clip_norm. {}", symptom, where,
                  kept.empty() ? "There is no checkpoint yet" : fmt::format("The last good checkpoint is {}", kept.front().string())));
}

Trainer::Score Trainer::evaluate(std::int64_t epoch) {
  nn::Pass pass;
  pass.training = false;
  const Nanoseconds began = around_.clock.now();
  at::Tensor sums;
  std::int64_t targets = 0;
  test_feed_->start(0, recipe_.data.batch);
  while (const auto batch = test_feed_->next()) {
    const nn::Scored scored = nn::softmax_loss(module_->run(batch->inputs, pass, nullptr), batch->targets, 0, 1, false);
    sums = sums.defined() ? sums.add_(scored.sums) : scored.sums;
    targets += batch->targets.numel();
  }
  const at::Tensor host = sums.cpu();
  last_test_ = {host[0].item<double>() / static_cast<double>(targets), host[1].item<double>() / static_cast<double>(targets)};
  evaluated_step_ = position_.step;
  around_.bus.emit(observe::Evaluated{epoch, position_.step, last_test_.loss, last_test_.accuracy, training_data_->info().tokens});
  if (around_.bus.wants_spans()) around_.bus.emit(observe::Span{"evaluate", "run", 0, began, around_.clock.now()});
  return last_test_;
}

// A disk that is full must not end a run: the last good checkpoint stays and training goes on, with an alarm.
void Trainer::checkpoint() {
  // The update after a finite loss may have overflowed; what it left must not take the place of a good checkpoint.
  if (!all_finite(*module_)) give_up(fmt::format("the update of step {} overflowed", position_.step));
  const Nanoseconds began = around_.clock.now();
  const auto folder = folder_ / "checkpoints";
  const auto file = checkpoint_file(folder, position_.step);
  try {
    std::filesystem::create_directories(folder);
    const FileStamp stamp = write_checkpoint(file, {position_, recipe_text_, module_->graph().network(), state()});
    prune_checkpoints(folder, recipe_.train.keep);
    last_checkpoint_step_ = position_.step;
    around_.bus.emit(observe::CheckpointWritten{position_.step, file.string(), stamp.bytes, around_.clock.now() - began});
  } catch (const std::exception& problem) {
    log::error("no checkpoint at step {}: {}; training goes on", position_.step, problem.what());
  }
  if (around_.bus.wants_spans()) around_.bus.emit(observe::Span{"checkpoint", "run", 0, began, around_.clock.now()});
  reported_at_ = around_.clock.now();
}

}  // namespace paceline::train
