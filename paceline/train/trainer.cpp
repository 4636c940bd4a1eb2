#include "paceline/train/trainer_impl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/comm/engine.h"
#include "paceline/step/recorded_step.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/recorded.h"
#include "paceline/train/step_memory.h"
#include "paceline/train/weights.h"

namespace paceline::train {
using observe::WallTime;

namespace {

constexpr double kFarAbove = 30;  // times a usual rate

/// Warns about settings that are allowed but hardly intended.
void warn_of_doubtful_settings(const Recipe& recipe) {
  if (recipe.schedule.warmup_epochs > static_cast<double>(recipe.train.epochs))
    log::warning("schedule.warmup_epochs={} is more than train.epochs={}: the rate never reaches optim.rate", recipe.schedule.warmup_epochs,
                 recipe.train.epochs);
  if (recipe.parallel.data_workers() == 1 && recipe.comm.compression != "none" && !recipe.ps.by_processes())
    log::warning("comm.compression={} has no effect: one data-parallel worker sends no gradients", recipe.comm.compression);
  if (recipe.parallel.data_workers() == 1 && recipe.comm.gradient_dtype != "fp32")
    log::warning("comm.gradient_dtype={} has no effect: one data-parallel worker sends no gradients", recipe.comm.gradient_dtype);
  if (recipe.data.cutout > 0 && !recipe.data.augment)
    log::warning("data.cutout={} has no effect without data.augment=true", recipe.data.cutout);
  if (const double usual = optim::optimizer_kind(recipe.optim.name).usual_rate; usual > 0 && recipe.optim.rate > kFarAbove * usual)
    log::warning("optim.rate={:g} is {:.0f} times what {} usually takes; use about optim.rate={:g}", recipe.optim.rate,
                 recipe.optim.rate / usual, recipe.optim.name, usual);
}

std::unique_ptr<comm::Communicator> alone(const Recipe& recipe) {
  if (recipe.parallel.workers > recipe.workers_per_trainer())
    throw ConfigError(
        fmt::format("parallel.workers={}, but this Trainer has no communicator to other workers; use train::Workers, or give each Trainer "
                    "its communicator",
                    recipe.parallel.workers));
  return std::move(comm::local_group(1).front());
}

/// The recipe as resolved for these workers.
Recipe settled(Recipe recipe, const comm::Communicator& comm) {
  recipe.parallel.workers = recipe.servers() ? recipe.workers_per_trainer() : comm.size();
  recipe.strategy.name = strategies::resolve(recipe.strategy.name, static_cast<int>(recipe.parallel.data_workers()));
  validate(recipe);
  return recipe;
}

const Datasets* checked(const Recipe& recipe, const Datasets* datasets) {
  if (datasets->training->size() < recipe.data.batch && recipe.data.drop_last)
    throw ConfigError(fmt::format("data.batch={} is more than the {} training samples of '{}'; use a smaller batch", recipe.data.batch,
                                  datasets->training->size(), recipe.data.name));
  if (const auto& shape = datasets->training->info().input;
      recipe.data.augment && shape.size() == 3 && recipe.data.cutout > std::max(shape[1], shape[2]))
    throw ConfigError(fmt::format("data.cutout={} is larger than an image of {}x{}, and would blank most of it; use less",
                                  recipe.data.cutout, shape[2], shape[1]));
  return datasets;
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, const Environment& around) : impl_(std::make_unique<Impl>(recipe, around)) {}
Trainer::~Trainer() = default;

// The trainer may be destroyed only when the error has been caught.
observe::RunEnded Trainer::run(const std::filesystem::path& folder) {
  try {
    return impl_->run(folder);
  } catch (...) {
    impl_->strategy_->abandon();
    throw;
  }
}

const data::Dataset& Trainer::training_data() const { return *impl_->datasets_->training; }
nn::Model& Trainer::module() { return *impl_->module_; }

Trainer::Impl::Impl(const Recipe& recipe, const Environment& around)
    : around_(around),
      times_(around.clock, around.began > Nanoseconds(0) ? around.began : around.clock.now(), &WallTime::start),
      alone_(around.comm ? nullptr : alone(recipe)),
      comm_(around.comm ? around.comm : alone_.get()),
      recipe_(settled(recipe, *comm_)),
      recipe_text_(recipe_.config().toml()),
      network_(network_of(recipe_, around_.workload)),
      mesh_(*comm_, recipe_.servers() ? comm::MeshSizes{} : recipe_.parallel.mesh()),
      own_datasets_(around_.datasets ? Datasets{} : make_datasets(recipe_, around_.workload)),
      datasets_(checked(recipe_, around_.datasets ? around_.datasets : &own_datasets_)),
      made_(make_shared_model()),
      module_(made_.model),
      context_(context_of(recipe_, around_.workload, *module_, made_.stages, mesh_, around_.bus, around_.clock)),
      loss_(context_.loss),
      evaluation_(std::make_unique<step::RecordedStep>(module_->device(), records_evaluation())) {
  if (leads()) warn_of_doubtful_settings(recipe_);
  context_.on_not_finite = [this](nn::Model& module, const at::Tensor& inputs, std::int64_t step) {
    const std::lock_guard lock(fault_mutex_);
    if (!fault_) fault_ = first_fault(module, inputs, step, /*training=*/true);
  };
  std::optional<step::Resumed> resumed;
  if (around.from) resumed = resume(*around.from);
  strategy_ = strategies::make_strategy(strategy_of(recipe_, around_.cluster, threads()), context_, resumed ? &*resumed : nullptr);
  if (resumed) module_->refresh();  // the strategy's state of each worker overrides the common one
  around_.from = nullptr;           // its owner may release it now
  centralised_ = strategy_->centralised();
  training_feed_ = make_training_feed();
  test_feed_ =
      make_feed(*datasets_->test, loader_options(recipe_, data::Split::test, mesh_.data(), recipe_.data.batch), recipe_.data, *module_);
  total_steps_ = count_steps();
  if (leads() && around_.predicts) prediction_ = predicted();
}

StagedModel Trainer::Impl::make_shared_model() const {
  configure_libtorch(recipe_, threads());
  StagedModel made =
      make_model(recipe_, around_.workload, datasets_->training->info(), mesh_, around_.from ? "" : recipe_.model.weights, around_.clock);
  made.model = share_out(recipe_, std::move(made.model), mesh_, around_.clock);
  return made;
}

Trainer::Impl::~Impl() = default;

std::uint32_t Trainer::Impl::vocabulary() const { return crc32c(std::as_bytes(std::span(datasets_->training->vocabulary()))); }

std::unique_ptr<Feed> Trainer::Impl::make_training_feed() const {
  return make_feed(*datasets_->training, loader_options(recipe_, data::Split::train, mesh_.data(), batch_in(0)), recipe_.data, *module_);
}

std::int64_t Trainer::Impl::batch_in(std::int64_t epoch) const { return minibatch_of(recipe_, datasets_->training->size(), epoch); }

std::int64_t Trainer::Impl::steps_in(std::int64_t epoch) const {
  const std::int64_t size = datasets_->training->size(), batch = batch_in(epoch);
  return recipe_.data.drop_last ? size / batch : (size + batch - 1) / batch;
}

std::int64_t Trainer::Impl::count_steps() const {
  // Between two milestones the batch is constant, for any number of epochs. Epochs that are done count as they were, since a resumed run
  // may have had other batches.
  std::int64_t epoch = position_.epoch, steps = position_.step - position_.batch;
  const std::int64_t epochs = std::max(epoch, recipe_.train.epochs);
  const auto count_until = [&](std::int64_t next) {
    if (next > epoch) steps += (next - epoch) * steps_in(epoch), epoch = next;
  };
  for (const double milestone : recipe_.schedule.batch_milestones)
    count_until(static_cast<std::int64_t>(std::min(std::ceil(milestone), static_cast<double>(epochs))));
  count_until(epochs);
  return recipe_.train.steps > 0 ? std::min(steps, recipe_.train.steps) : steps;
}

bool Trainer::Impl::finished() const { return position_.epoch >= recipe_.train.epochs || position_.step >= total_steps_; }

observe::RunEnded Trainer::Impl::run(const std::filesystem::path& folder) {
  folder_ = folder;
  if (leads())
    if (const auto aside = set_aside_behind(position_.step, checkpoints()))
      log::warning("{} continues from step {}; its later checkpoints were moved to {}", folder_.string(), position_.step, aside->string());
  configure_libtorch(recipe_, threads());  // again: the trainer may have been made in another thread
  tensor::synchronize(module_->device());  // the setup was enqueued by another thread
  const tensor::OwnStream stream(module_->device());
  if (leads()) steps_made_.emplace(folder_).set(position_.step);
  if (leads()) around_.bus.emit(started());
  checkpointer_ = make_checkpointer();
  meet();

  times_.turn_to(&WallTime::rest);
  std::optional<StepMemory> memory;  // must end in the thread in which it began
  if (prediction_ && !centralised_) memory_ = &memory.emplace(module_->arena());
  first_step_ = position_.step;
  // It is due here if the earlier run stopped between the checkpoint at the end of an epoch and its evaluation.
  bool stopped = evaluation_due() && !evaluate();
  while (!finished() && !stopped) stopped = !train_epoch();
  const auto kept_in_the_end = [&] {  // a run waits for what is still being written
    const auto waiting = times_.enter(&WallTime::final_wait);
    const Nanoseconds began = around_.clock.now();
    const bool complete = kept();
    checkpointer_->waited(seconds(around_.clock.now() - began));
    return complete;
  };
  if (!kept_in_the_end()) checkpoint(around_.clock.now());
  if (!stopped) stopped = (evaluation_due() && !evaluate()) || !evaluate_views();
  if (!kept_in_the_end() && stopped)
    throw Error(fmt::format("stopped on request at step {}, but no checkpoint could be written in {}", position_.step, folder_.string()));

  observe::RunEnded result = ended(stopped);
  memory_ = nullptr;
  if (leads()) around_.bus.emit(result);
  return result;
}

// Worker 0 reads and writes for all, and its disk may be slow. Workers may also have found different checkpoints: each process searches on
// its own host's disk, and a checkpoint may have been completed in the meantime.
void Trainer::Impl::meet() {
  if (comm_->size() == 1) return;
  std::vector<std::int64_t> steps(static_cast<std::size_t>(comm_->size()));
  steps[static_cast<std::size_t>(comm_->rank())] = position_.step;
  comm_->run(comm::all_gather(steps, {.deadline = comm::kUntilTheEnd}));
  if (const auto other = std::ranges::find_if(steps, [&](std::int64_t step) { return step != steps[0]; }); other != steps.end())
    throw ConfigError(fmt::format("worker 0 continues from step {} and worker {} from step {}; give all of them the same checkpoint",
                                  steps[0], other - steps.begin(), *other));
}

bool Trainer::Impl::train_epoch() {
  const std::int64_t epoch = position_.epoch, steps = steps_in(epoch), batch = batch_in(epoch);
  const auto training = times_.enter(&WallTime::steps);
  const Nanoseconds began = around_.clock.now();
  const std::int64_t samples_before = position_.samples;
  if (position_.batch == 0) position_.loss_sum = position_.right = 0, position_.targets = 0;
  const std::int64_t report_every = module_->device().is_cpu() && strategies::keeps_step(recipe_.strategy.name) ? 1 : kReportTogether;
  if (reads_batches()) training_feed_->start(epoch, batch, position_.batch);
  reported_at_ = began;
  step::Batch share;
  while (position_.batch < steps && position_.step < total_steps_) {
    if (reads_batches()) {
      const auto waiting = times_.enter(&WallTime::data);
      const std::optional<step::Batch> next = training_feed_->next();
      ensure(next.has_value(), "an epoch has as many batches as the sampler says");
      share = *next;
    } else {
      share.global_samples = std::min(batch, datasets_->training->size() - position_.batch * batch);
    }
    // All parts of a batch have the same rate, so a schedule means the same with a parameter server as without one.
    const std::int64_t begun = position_.batch - position_.batch % minibatches();
    const optim::Progress progress{.epoch = static_cast<double>(epoch) + static_cast<double>(begun) / static_cast<double>(steps),
                                   .epochs = static_cast<double>(recipe_.train.epochs)};
    const step::Point point{.step = position_.step + 1,
                            .rate = optim::learning_rate(recipe_.schedule, recipe_.optim.rate, recipe_.data.batch, progress),
                            .epoch = progress.epoch,
                            .epoch_index = epoch,
                            .batch_index = position_.batch};
    if (memory_) memory_->begin_step();
    const step::StepResult result = strategy_->step(share, point);
    if (memory_) memory_->end_step();

    latest_ = {point.step, position_.batch + 1, result.targets, share.global_samples, point.rate};
    keep(result);
    ++position_.step, ++position_.batch, position_.samples += share.global_samples;
    if (steps_made_) steps_made_->set(position_.step);

    const bool last = position_.batch >= steps || position_.step >= total_steps_;
    const bool due = checkpoint_due();
    const Nanoseconds decided = around_.clock.now();
    if (last || due || told_to_stop()) finish_steps();
    else if (static_cast<std::int64_t>(unreported_.size()) >= report_every) report();

    const bool stop = told_to_stop();
    if ((stop || due) && position_.batch < steps) {  // the end of an epoch has its own checkpoint
      finish_steps();                                // the request to stop may have come with the report
      checkpoint(decided);
    }
    if (stop && position_.batch < steps) return false;
  }
  if (position_.targets == 0 && refused_ > 0) give_up(fmt::format("no loss of epoch {} was finite", epoch + 1), blame());
  observe::EpochDone done{.epoch = epoch + 1,
                          .epochs = recipe_.train.epochs,
                          .train_loss = position_.mean_loss(),
                          .train_accuracy = loss_->counts_right() ? position_.mean_right() : observe::kUnknown,
                          .duration = around_.clock.now() - began,
                          .samples = position_.samples - samples_before};
  const bool whole = position_.batch >= steps;  // false: train.steps ended the run inside the epoch
  if (whole) {
    ++position_.epoch;
    position_.batch = 0;
    if (leads()) around_.bus.emit(done);
  }
  // Before the evaluation, so that an unreadable test image, or a kill, does not cost an epoch.
  if (last_checkpoint_step_ != position_.step && epoch_checkpoint()) checkpoint(around_.clock.now());
  return !told_to_stop() && (!evaluation_due() || evaluate());
}

}  // namespace paceline::train
