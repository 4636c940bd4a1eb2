// What the Trainer reports about its run: its beginning and end, the sums of its steps, and whether it has diverged.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/comm/engine.h"
#include "paceline/tensor/device.h"
#include "paceline/train/mesh_diagram.h"
#include "paceline/train/predicted_time.h"
#include "paceline/train/step_memory.h"
#include "paceline/train/trainer_impl.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

constexpr std::size_t kStepsKept = 1024;   // the number of durations over which the median is taken
constexpr std::int64_t kRefusedEach = 16;  // consecutive refused gradients, per worker, after which the run counts as diverged

}  // namespace

// The run matters more than its prediction: if none can be made, the run continues without one, unless the recipe asks for it.
std::optional<observe::Prediction> Trainer::Impl::predicted() const {
  if (around_.workload.model || !knows_machine(recipe_)) return std::nullopt;
  const comm::Topology here = comm_->topology();
  const int ranks = static_cast<int>(recipe_.parallel.workers);
  const RunHosts hosts{.hosts = here.hosts,
                       .workers_per_host = (ranks + here.hosts - 1) / here.hosts,
                       .place = {.hosts = mesh_.data().topology().hosts, .shares_memory = comm::engine_of(comm_->engine()).shares_memory}};
  try {
    return predict(recipe_, graph_for(recipe_.model, datasets_->training->info()), hosts, context_.pipeline.stages);
  } catch (const std::exception& problem) {
    const bool asked = !recipe_.train.cluster.empty() || !recipe_.train.profile.empty();
    if (asked && dynamic_cast<const ConfigError*>(&problem)) throw;
    log::info("this run's step time is not predicted: {}", problem.what());
    return std::nullopt;
  }
}

observe::RunStarted Trainer::Impl::started() const {
  const data::Info& info = datasets_->training->info();
  observe::RunStarted event;
  event.run = folder_.string();
  event.network = network_;
  event.dataset = info.key;
  event.optimizer = recipe_.optim.name;
  event.strategy = recipe_.strategy.name;
  event.device = tensor::device_name(module_->device());
  event.precision = recipe_.train.precision;
  event.parameters = parameters_of(*module_);
  event.macs = macs_of(*module_);
  event.train_samples = datasets_->training->size();
  event.test_samples = datasets_->test->size();
  event.batch = recipe_.data.batch;
  event.per_token = info.tokens && !info.target.empty();
  event.counts_right = loss_->counts_right();
  event.class_names = info.class_names;
  event.epochs = recipe_.train.epochs;
  event.steps_per_epoch = steps_in(0);
  event.workers = static_cast<int>(recipe_.parallel.workers);
  event.mesh = describe_mesh(mesh_, *module_, context_.pipeline.stages, static_cast<int>(recipe_.parallel.zero));
  event.engine = comm_->size() > 1 ? comm_->engine() : minibatches() > 1 ? recipe_.ps.executor : "";
  event.first_step = position_.step;
  event.prediction = prediction_;
  return event;
}

// The median of the second half: the first steps allocate memory, warm up caches and try buckets (data_parallel/bucket_tuner.h). The
// workers of a parameter server finish minibatches independently, sometimes several at once, so as many steps as there are workers are
// counted together. So are the steps of a period, if workers meet every few steps.
double Trainer::Impl::settled_step() const {
  const auto together = static_cast<std::ptrdiff_t>(std::max(minibatches(), strategies::period_of(recipe_.strategy)));
  std::vector<double> settled;
  for (auto from = step_seconds_.begin() + std::ssize(step_seconds_) / 2; step_seconds_.end() - from >= together; from += together)
    settled.push_back(std::accumulate(from, from + together, 0.0) / static_cast<double>(together));
  if (settled.empty()) return std::accumulate(step_seconds_.begin(), step_seconds_.end(), 0.0) / static_cast<double>(step_seconds_.size());
  std::ranges::nth_element(settled, settled.begin() + std::ssize(settled) / 2);
  return settled[settled.size() / 2];
}

observe::RunEnded Trainer::Impl::ended(bool stopped) {
  observe::RunEnded event;
  event.workers = static_cast<int>(recipe_.parallel.workers);
  event.steps = position_.step;
  event.epochs = position_.epoch;
  event.samples = position_.samples;
  event.seconds = position_.seconds;
  event.samples_per_s =
      position_.seconds > 0 ? static_cast<double>(position_.samples) / position_.seconds : 0;  // including the time before a resumption
  event.train_loss = position_.mean_loss();
  event.test_loss = last_test_.loss;
  event.test_accuracy = last_test_.accuracy;
  event.test_metrics = last_test_.metrics;
  hash_state(event);
  event.run = folder_.string();
  if (recipe_.train.checkpoints) event.checkpoints = checkpointer_->total();
  event.skipped_steps = strategy_->skipped_steps();
  if (!step_seconds_.empty()) event.step_s = settled_step();
  if (memory_ && memory_->bytes()) event.memory_bytes = static_cast<double>(*memory_->bytes());
  if (stopped) event.stopped = "on request";
  if (comm_->size() > 1) event.communication = communication();
  if (centralised_) event.served = centralised_->served();
  if (!stopped && event.served && event.served->updates == 0)
    log::warning("the server made no update in {} steps, so the model is unchanged; train longer, or lower ps.period ({}) or ps.group ({})",
                 event.steps, recipe_.ps.period, recipe_.ps.group);
  event.views = views_;
  event.wall = times_.read();
  return event;
}

// A parameter server refuses a gradient that is not finite and continues without it. The run ends if finite ones no longer arrive.
bool Trainer::Impl::accepts(std::int64_t step, double loss) {
  if (std::isfinite(loss)) {
    refused_ = 0;
    if (centralised_) {
      const std::lock_guard lock(fault_mutex_);
      fault_.reset();  // the run got over it
    }
    return true;
  }
  if (!centralised_) give_up(fmt::format("the loss is {} at step {}", loss, step), blame());
  if (++refused_ >= kRefusedEach * minibatches())
    give_up(fmt::format("the loss is {} at step {}, and has not been finite for {} steps", loss, step, refused_), blame());
  return false;
}

bool Trainer::Impl::counts() const {
  const comm::MeshPlace place = mesh_.place_of(comm_->rank());
  return place.tensor == 0 && place.pipeline + 1 == mesh_.sizes().pipeline;
}

void Trainer::Impl::keep(const step::StepResult& result) {
  if (!unreported_sums_.defined()) unreported_sums_ = at::zeros({kReportTogether, 2}, result.sums.options());
  unreported_sums_[static_cast<std::int64_t>(unreported_.size())].copy_(result.sums);
  unreported_.push_back(latest_);
}

// After such a pause, the first steps end before any minibatch is finished, so the last one gets their samples. Each step is reported once:
// sums that were in flight are added to the latest step, unless either is not finite; such a loss is not reported at all.
void Trainer::Impl::finish_steps() {
  const step::StepResult rest = centralised_ ? centralised_->finish() : step::StepResult{};
  if (rest.targets == 0) return report();
  if (!unreported_.empty()) {
    Unreported& latest = unreported_.back();
    const at::Tensor sums = unreported_sums_[static_cast<std::int64_t>(unreported_.size()) - 1];
    if (std::isfinite(sums[0].item<double>()) && std::isfinite(rest.sums[0].item<double>())) {
      for (Unreported& step : unreported_)
        if (step.targets == 0 && &step != &latest) silent_samples_ += std::exchange(step.samples, 0);
      sums.add_(rest.sums);
      latest.targets += rest.targets, latest.samples += std::exchange(silent_samples_, 0);
      return report();
    }
  }
  report();
  latest_.targets = rest.targets, latest_.samples = std::exchange(silent_samples_, 0);
  keep(rest);
  report();
}

void Trainer::Impl::report() {
  if (unreported_.empty()) return;
  const auto count = static_cast<std::int64_t>(unreported_.size());
  // One row per step: loss, right answers and targets, of this worker and, after the sum, of all. One more row has whether any worker was
  // asked to stop, the progress of a checkpoint, and whether worker 0 wants another; the last row has the number and the cost of writers.
  at::Tensor sums = at::zeros({count + 2, 3}, at::kDouble);
  if (counts()) sums.narrow(0, 0, count).narrow(1, 0, 2).copy_(unreported_sums_.narrow(0, 0, count));  // on a GPU this waits for the steps
  auto rows = sums.accessor<double, 2>();
  for (std::int64_t i = 0; i < count && counts(); ++i) rows[i][2] = static_cast<double>(unreported_[static_cast<std::size_t>(i)].targets);
  rows[count][0] = around_.stop.load(std::memory_order_relaxed) ? 1 : 0;
  const Checkpointer::Progress written = checkpointer_->progress();
  rows[count][1] = written.parts, rows[count + 1][0] = written.writers, rows[count + 1][1] = written.cpu_s;
  rows[count][2] = leads() ? static_cast<double>(checkpointer_->wish()) : 0;
  const step::Traffic traffic = strategy_->traffic();
  const double exposed = traffic.exposed_s - traffic_before_.exposed_s;
  const double hidden = std::max(traffic.communication_s - traffic_before_.communication_s - exposed, 0.0);
  const auto sent = static_cast<double>(traffic.bytes_sent - traffic_before_.bytes_sent);
  traffic_before_ = traffic;
  compute_s_ += seconds(around_.clock.now() - reported_at_) - exposed;
  if (comm_->size() > 1) comm_->run(comm::allreduce(comm::Buffer(sums.data_ptr<double>(), sums.numel())));
  stopping_ = stopping_ || rows[count][0] > 0;
  checkpointer_->heard({.parts = rows[count][1], .writers = rows[count + 1][0], .cpu_s = rows[count + 1][1]});
  checkpoint_wish_ = static_cast<Checkpointer::Wish>(static_cast<int>(rows[count][2]));

  const Nanoseconds now = around_.clock.now(), each = (now - reported_at_) / count;
  const double elapsed = seconds(now - reported_at_);
  training_seconds_ += elapsed;
  position_.seconds += elapsed;
  reported_at_ = now;
  for (std::int64_t i = 0; i < count; ++i) {
    const Unreported& step = unreported_[static_cast<std::size_t>(i)];
    const double loss = rows[i][0], right = rows[i][1], targets = rows[i][2];
    if (step_seconds_.size() == kStepsKept) step_seconds_.pop_front();
    step_seconds_.push_back(seconds(each));
    if (targets == 0) {  // no minibatch was finished in that step: asynchronous workers
      silent_samples_ += step.samples;
      continue;
    }
    if (!accepts(step.step, loss)) continue;
    position_.loss_sum += loss, position_.right += right, position_.targets += static_cast<std::int64_t>(targets);
    observe::StepDone done;
    done.step = step.step, done.steps = total_steps_, done.epoch = position_.epoch + 1, done.samples = step.samples;
    done.epoch_step = step.epoch_step, done.epoch_steps = steps_in(position_.epoch);
    done.loss = loss / targets, done.accuracy = loss_->counts_right() ? right / targets : observe::kUnknown, done.rate = step.rate,
    done.duration = each;
    if (elapsed > 0) done.communication_share = exposed / elapsed, done.hidden_share = hidden / elapsed;
    done.bytes_sent = sent / static_cast<double>(count);
    if (leads()) around_.bus.emit(done);
  }
  unreported_.clear();
}

observe::Communication Trainer::Impl::communication() {
  const step::Traffic traffic = strategy_->traffic();
  std::vector<double> computing(static_cast<std::size_t>(comm_->size())), mean = {traffic.exposed_s, traffic.communication_s};
  computing[static_cast<std::size_t>(comm_->rank())] = compute_s_;
  comm_->run(comm::all_gather(computing));
  comm_->run(comm::allreduce(mean, {.op = comm::ReduceOp::mean}));
  const auto [fastest, slowest] = std::ranges::minmax(computing);
  const double total = std::max(training_seconds_, 1e-9);
  const auto steps = static_cast<double>(std::max<std::int64_t>(position_.step - first_step_, 1));
  return {.exposed = mean[0] / total,
          .hidden = std::max(mean[1] - mean[0], 0.0) / total,
          .straggler_spread = slowest > 0 ? (slowest - fastest) / slowest : 0,
          .bytes_per_step = static_cast<double>(traffic.bytes_sent) / steps,
          .bytes_pipeline = static_cast<double>(traffic.bytes_pipeline) / steps,
          .bytes_tensor = static_cast<double>(traffic.bytes_tensor) / steps,
          .ratio = traffic.bytes_sent > 0 ? static_cast<double>(traffic.bytes_plain) / static_cast<double>(traffic.bytes_sent) : 1};
}

// All workers have the same sums, so all of them get here, although the fault may be that of a single worker.
std::string Trainer::Impl::blame() {
  constexpr std::size_t kNumbers = 3;
  std::vector<std::int64_t> seen(kNumbers * static_cast<std::size_t>(comm_->size()));
  {
    const std::lock_guard lock(fault_mutex_);
    const Fault own = fault_.value_or(Fault{});  // of step 0: none
    const std::int64_t numbers[kNumbers] = {own.step, own.part, own.parameter};
    std::ranges::copy(numbers, &seen[kNumbers * static_cast<std::size_t>(comm_->rank())]);
  }
  // One worker may find a fault in its first batch of test data, while another reads all of its data and finds none.
  if (comm_->size() > 1) comm_->run(comm::all_gather(seen, {.deadline = comm::kUntilTheEnd}));
  std::optional<Fault> first;
  for (std::size_t i = 0; i < seen.size(); i += kNumbers)
    if (const Fault fault{seen[i], seen[i + 1], seen[i + 2]}; fault.step > 0 && (!first || fault < *first)) first = fault;
  if (first) return describe(*module_, *first);
  return module_->device().is_cpu() ? "its workers do not report in which layer it began"
                                    : "the layer in which it began is unknown: a GPU is not checked after each step, and later updates "
                                      "spread it; train.device=cpu finds it";
}

void Trainer::Impl::give_up(const std::string& symptom, const std::string& where, const std::optional<std::filesystem::path>& aside) {
  checkpointer_->finish();
  std::string message = fmt::format("{}: {}; lower optim.rate, add warm-up or optim.clip_norm", symptom, where);
  try {
    if (leads()) {  // the others may have no access to the run's folder
      const auto kept = list_checkpoints(folder_);
      message += kept.empty() ? ". There is no checkpoint yet" : fmt::format(". The last good checkpoint is {}", kept.front().string());
      if (aside) message += fmt::format("; that of step {}, which is not finite, was moved to {}", position_.step, aside->string());
    }
  } catch (const DataError&) {
    // An unreadable folder must not hide the actual error.
  }
  throw Diverged(message);
}

}  // namespace paceline::train
