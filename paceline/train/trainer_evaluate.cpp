// The Trainer's evaluations: loss and accuracy of the model that the workers agree on, with every kind of statistics that the strategy has.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/central/norm_reports.h"
#include "paceline/pipeline/pipeline_pass.h"
#include "paceline/step/recorded_step.h"
#include "paceline/train/trainer_impl.h"

namespace paceline::train {

// Depends only on the position: if a run was stopped before its evaluation, the resumed run makes up for it.
bool Trainer::Impl::evaluation_due() const {
  if (evaluated_step_ == position_.step) return false;
  if (finished()) return true;
  const double every = recipe_.train.evaluate_every, epoch = static_cast<double>(position_.epoch);
  return every > 0 && position_.epoch > 0 && position_.batch == 0 && std::floor(epoch / every) > std::floor((epoch - 1) / every);
}

bool Trainer::Impl::evaluate() {
  const auto evaluating = times_.enter(&observe::WallTime::evaluation);
  const Nanoseconds began = around_.clock.now();
  strategy_->agree();
  if (centralised_ && centralised_->views().front() == central::kRecomputedView) recompute_statistics();
  const std::optional<Score> found = score();
  if (!found) {
    strategy_->resume_training();
    return false;
  }
  last_test_ = *found;
  if (!std::isfinite(last_test_.loss) && datasets_->test->size() > 0) {
    look_into_test();
    const std::string where = blame();
    std::optional<std::filesystem::path> aside;
    kept();
    if (leads()) aside = set_aside_behind(position_.step - 1, checkpoints());  // it was written before the fault was known
    give_up(fmt::format("the test loss is {} after step {}", last_test_.loss, position_.step), where, aside);
  }
  strategy_->resume_training();
  evaluated_step_ = position_.step;
  if (leads() && recipe_.train.checkpoints) checkpointer_->accept(position_.step);
  const double virtual_s = centralised_ ? centralised_->served().virtual_s : observe::kUnknown;
  const double training_s = std::isfinite(virtual_s) ? virtual_s : position_.seconds;
  if (leads())
    around_.bus.emit(
        observe::Evaluated{position_.epoch, position_.step, last_test_.loss, last_test_.accuracy, training_s, last_test_.metrics});
  meet();
  if (around_.bus.wants_spans()) around_.bus.emit(observe::Span{"evaluate", "run", comm_->rank(), began, around_.clock.now()});
  return true;
}

// Ranks that communicate in a pass must leave an evaluation together, so they ask each other, though not before every batch. All feeds have
// the same number of batches.
bool Trainer::Impl::told_to_stop_at(std::int64_t batch) {
  constexpr std::int64_t kBatches = 16;
  std::vector<std::int32_t> told = {around_.stop.load(std::memory_order_relaxed) ? 1 : 0};
  const bool workers_meet = module_->workers_meet();
  if (!workers_meet && mesh_.pipeline().size() == 1 && mesh_.tensor().size() == 1) return told[0] > 0;
  if (batch % kBatches > 0) return false;
  for (comm::Communicator* const axis : {&mesh_.data(), &mesh_.pipeline(), &mesh_.tensor()})
    if (axis->size() > 1 && (workers_meet || axis != &mesh_.data()))
      axis->run(comm::allreduce(told, {.op = comm::ReduceOp::max, .deadline = comm::kUntilTheEnd}));
  return told[0] > 0;
}

// Only if steps are recorded too, and every batch is processed in the same memory and without other workers. A user's metric may do
// anything.
bool Trainer::Impl::records_evaluation() const {
  return context_.record_steps && !recipe_.servers() && recipe_.parallel.zero == 0 && mesh_.tensor().size() == 1 &&
         !module_->workers_meet() && loss_->metrics().empty();
}

// Loss and accuracy of the module in its current state, over the test data of all workers. It may take minutes, so it ends early if the run
// is to stop.
std::optional<Trainer::Impl::Score> Trainer::Impl::score() {
  const auto pass = pipeline::make_pass(context_);
  const std::vector<std::string> metrics = loss_->metrics();
  const std::int64_t sums = 2 + std::ssize(metrics);  // loss, right answers, metrics
  if (!evaluation_sums_.defined()) evaluation_sums_ = at::empty({sums}, at::TensorOptions().dtype(at::kDouble).device(module_->device()));
  evaluation_sums_.zero_();
  std::int64_t targets = 0;
  std::int64_t seen = 0;  // batches
  bool stop = false;
  test_feed_->start(0, recipe_.data.batch);
  while (const auto batch = test_feed_->next()) {
    stop = told_to_stop_at(seen++);
    if (stop) break;
    evaluation_->run(*batch, [&] { evaluation_sums_.add_(pass->evaluate(*batch)); });
    targets += batch->targets.numel();
  }
  const at::Tensor host = evaluation_sums_.cpu();
  std::vector<double> all = {static_cast<double>(targets), stop ? 1.0 : 0.0};
  all.insert(all.end(), host.data_ptr<double>(), host.data_ptr<double>() + sums);
  if (!counts()) std::ranges::fill(all, 0.0), all[1] = stop ? 1.0 : 0.0;
  // Workers that are slower, or were not asked to stop, may arrive minutes later.
  if (comm_->size() > 1) comm_->run(comm::allreduce(all, {.deadline = comm::kUntilTheEnd}));
  stopping_ = stopping_ || all[1] > 0;
  if (all[1] > 0) return std::nullopt;
  const auto mean = [&](std::size_t index) { return all[2 + index] / all[0]; };
  Score score{mean(0), loss_->counts_right() ? mean(1) : observe::kUnknown};
  for (std::size_t i = 0; i < metrics.size(); ++i) score.metrics.push_back({metrics[i], mean(2 + i)});
  return score;
}

// Repeats the pass over this worker's test data, layer by layer, until a batch shows the fault.
void Trainer::Impl::look_into_test() {
  if (mesh_.pipeline().size() > 1) return;  // no rank has all layers
  std::optional<Fault> found;
  test_feed_->start(0, recipe_.data.batch);
  const bool together = module_->workers_meet();
  for (auto batch = test_feed_->next(); batch && (!found || together); batch = test_feed_->next()) {
    if (batch->inputs.size(0) == 0 || found) {
      module_->take_part(batch->inputs, /*training=*/false);
      continue;
    }
    const Fault fault = first_fault(*module_, batch->inputs, position_.step, /*training=*/false);
    if (!is_in_loss(*module_, fault)) found = fault;
  }
  const std::lock_guard lock(fault_mutex_);
  fault_ = found;
}

// At the end of a run: evaluates the model with every kind of statistics that the strategy has, to separate the effects of weights and of
// batch norms.
bool Trainer::Impl::evaluate_views() {
  if (!centralised_) return true;
  const std::vector<std::string> names = centralised_->views();
  if (names.size() < 2) return true;
  const auto evaluating = times_.enter(&observe::WallTime::evaluation);
  for (std::size_t view = 0; view < names.size(); ++view) {
    std::optional<Score> found = last_test_;
    if (view > 0) {
      centralised_->show(names[view]);
      if (names[view] == central::kRecomputedView) recompute_statistics();
      found = score();
      strategy_->resume_training();
      if (!found) return false;
    }
    views_.push_back({position_.epoch, position_.step, names[view], found->loss, found->accuracy});
    if (leads()) around_.bus.emit(views_.back());
  }
  return true;
}

// The mean statistics over a number of training batches, with the current weights.
void Trainer::Impl::recompute_statistics() {
  constexpr std::int64_t kBatches = 32;
  if (!statistics_feed_) statistics_feed_ = make_training_feed();
  central::NormReports norms(*module_);
  at::Tensor batch_statistics = norms.initial(), unused = norms.initial(), sum = at::zeros_like(batch_statistics);
  statistics_feed_->start(0, batch_in(0));
  std::int64_t seen = 0;
  while (seen < kBatches) {
    const auto batch = statistics_feed_->next();
    if (!batch) break;
    norms.before_pass();
    module_->run(batch->inputs, nn::Pass{}, nullptr);
    norms.after_pass(batch_statistics, unused, 1);
    sum.add_(batch_statistics), ++seen;
  }
  norms.show(sum / static_cast<double>(std::max<std::int64_t>(seen, 1)));
}

}  // namespace paceline::train
