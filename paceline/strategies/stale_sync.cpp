// Stale-synchronous decentralised training: the allreduce of a step's gradients continues during the next `staleness` steps, and is applied
// after them. Communication is hidden behind whole steps, at the price of gradients that are s steps old.
//   w_{t+1} = w_t − γ · mean_i g_i(w_{t−s})
// The first s steps apply nothing. All workers have the same parameters at all times. staleness = 0 is allreduce without overlap.
#include <ATen/ATen.h>

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/norm_statistics.h"
#include "paceline/schedule/program_writer.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/stream_timer.h"

namespace paceline::strategies {
namespace {

constexpr const char* kGradients = "stale_sync.gradients";

const step::Context& checked(const step::Context& context) {
  if (context.compression != "none")
    throw ConfigError(
        fmt::format("comm.compression={} works with strategy.name=allreduce; use comm.compression=none", context.compression));
  return context;
}

class StaleSync final : public step::Strategy {
 public:
  StaleSync(const StrategyConfig& config, const step::Context& context)
      : config_(config),
        context_(checked(context)),
        pass_(context_),
        updater_(context.model.arena(), context.optim, &context.mesh),
        statistics_(context_, config.batch_norm, config.statistics),
        on_stream_(context.model.device()) {
    statistics_.synchronise(pass_);
    const auto allocate = data_parallel::allocate_from(context.comm());
    for (std::int64_t i = 0; i <= config_.staleness; ++i) free_.push_back(allocate(gradients().numel(), gradients().options()));
  }
  ~StaleSync() override {
    for (const Sent& sent : in_flight_) {  // its memory must live until then
      try {
        sent.work.wait();
      } catch (const std::exception&) {  // the ranks that miss it report the error
      }
    }
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override {
    const step::PhaseSpan span(context_, "step");
    pass_.begin_step(point.step);
    const at::Tensor sums = pass_.run(batch, batch.weight(context_.workers()), [this](std::size_t, std::size_t) { look(); });

    at::Tensor slot = free_.back();
    free_.pop_back();
    slot.copy_(gradients());
    const comm::Buffer buffer = slot;
    const Nanoseconds began = context_.clock.now();
    in_flight_.push_back({context_.comm().start(comm::allreduce(buffer, {.op = comm::ReduceOp::mean})), slot, began});
    traffic_.bytes_sent += data_parallel::allreduce_bytes(buffer.bytes(), context_.workers()), traffic_.bytes_plain = traffic_.bytes_sent;

    if (std::ssize(in_flight_) > config_.staleness) apply_oldest(point);
    return {sums, batch.targets.numel()};
  }

  void agree() override { statistics_.agree(); }
  void resume_training() override { statistics_.resume_training(); }

  // Waits for what is in flight and saves it: [how many, length], the same on all workers.
  std::vector<step::NamedTensor> save() override {
    std::vector<step::NamedTensor> state = updater_.state();
    if (in_flight_.empty()) state.push_back({kGradients, at::empty({0, gradients().numel()}, gradients().options())});
    for (std::int64_t i = 0; i < std::ssize(in_flight_); ++i) {
      const Sent& sent = in_flight_[static_cast<std::size_t>(i)];
      sent.work.wait();
      state.push_back(step::rows_of(kGradients, sent.gradients.unsqueeze(0), i, std::ssize(in_flight_)));
    }
    look();
    for (step::NamedTensor& item : statistics_.save()) state.push_back(std::move(item));
    return state;
  }

  void load(std::span<const step::NamedTensor> state) override {
    const auto shape = step::saved_shape(state, kGradients);
    if (!shape) step::find_saved(state, kGradients);  // reports it
    if (shape->size() != 2 || shape->at(1) != gradients().numel())
      throw ConfigError(fmt::format("'{}' of the checkpoint has {} values, but this model has {}; resume with the same recipe", kGradients,
                                    shape->empty() ? 1 : shape->back(), gradients().numel()));
    const std::int64_t rows = shape->at(0);
    if (rows > config_.staleness)
      throw ConfigError(fmt::format("the checkpoint has {} gradients in flight; resume with strategy.staleness={} or more", rows, rows));
    updater_.load(state);
    for (std::int64_t i = 0; i < rows; ++i) {
      at::Tensor slot = free_.back();
      free_.pop_back();
      slot.copy_(step::saved_rows(state, kGradients, i, i + 1)[0]);
      in_flight_.push_back({comm::Work(), slot, {}, /*counted=*/true});
    }
    statistics_.load(state);
  }

  step::Traffic traffic() const override {
    step::Traffic traffic = pass_.traffic() += traffic_;
    return traffic += {.exposed_s = on_stream_.seconds(), .communication_s = on_stream_.seconds()};
  }

 private:
  struct Sent {
    comm::Work work;
    at::Tensor gradients;
    Nanoseconds began;
    bool counted = false;
  };

  const at::Tensor& gradients() { return context_.model.arena().gradients(); }

  /// Counts the duration of exchanges that ended since the last call. It is called at every layer of the backward pass; an exchange that
  /// ends in a forward pass counts up to the end of that pass. Exchanges run one after the other, so each starts when the previous one
  /// ends. On a GPU the host does not see them end, so only the time that the stream waits for them counts.
  void look() {
    if (on_stream_.measures()) return;
    for (Sent& sent : in_flight_) {
      if (sent.counted) continue;
      if (!sent.work.done()) return;
      const Nanoseconds now = context_.clock.now();
      traffic_.communication_s += seconds(now - std::max(sent.began, last_ended_));
      last_ended_ = now;
      sent.counted = true;
    }
  }

  /// Updates are numbered separately, for Adam's bias corrections: every step has sent a gradient, but those in flight are not applied yet.
  void apply_oldest(const step::Point& point) {
    updater_.begin_step({.rate = static_cast<float>(point.rate), .step = point.step - std::ssize(in_flight_) + 1});
    const Nanoseconds began = context_.clock.now();
    {
      const step::PhaseSpan wait(context_, "wait for gradients", "communication");
      on_stream_.begin();
      in_flight_.front().work.wait();
      on_stream_.end();
    }
    if (!on_stream_.measures()) traffic_.exposed_s += seconds(context_.clock.now() - began);
    look();
    const Sent oldest = in_flight_.front();
    in_flight_.pop_front();
    const step::PhaseSpan update(context_, "update");
    at::Tensor(gradients()).copy_(oldest.gradients);
    updater_.update_all();
    context_.model.refresh();
    free_.push_back(oldest.gradients);
  }

  StrategyConfig config_;
  step::Context context_;
  step::LocalPass pass_;
  step::Updater updater_;
  data_parallel::WorkerStatistics statistics_;
  std::vector<at::Tensor> free_;  // memory for gradients in flight
  std::deque<Sent> in_flight_;    // oldest first
  Nanoseconds last_ended_{0};
  step::Traffic traffic_;
  tensor::StreamTimer on_stream_;  // waits for gradients on a GPU
};

}  // namespace

std::unique_ptr<step::Strategy> make_stale_sync(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<StaleSync>(config, context);
}

// A step in the middle of a run: the allreduce of an earlier step's gradients runs concurrently with the passes.
std::vector<schedule::Program> stale_sync_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  if (settings.pipeline > 1 || settings.zero > 0)
    throw ConfigError("strategy 'stale_sync' reduces the gradients of whole models; use parallel.pipeline=1 and parallel.zero=0");
  using schedule::Action;
  schedule::ProgramWriter writer(model, settings, 0);
  const auto reduce = [&](std::vector<int> after) {
    if (settings.data == 1) return;
    writer.communicate(Action::Lane::exchange, Action::Exchange::allreduce, Action::Axis::data, writer.elements(), settings.wire_bytes,
                       std::move(after));
  };
  if (settings.staleness > 0) reduce({});
  writer.passes();
  if (settings.staleness == 0) reduce(writer.last(Action::Lane::compute));
  writer.wait(writer.last(Action::Lane::exchange));
  writer.update_all(writer.elements());
  return {writer.take()};
}

}  // namespace paceline::strategies
