// Synchronous data parallelism: every worker computes the gradient of its share of the batch, an allreduce makes the mean of them, and all
// make the same update. w ← w − γ · mean over samples ∇ℓ: what one worker with the whole batch would do, whatever the number of workers.
//
// Gradients leave in buckets while the backward pass goes on (buckets.h), compressed or not (exchange.h), and each range of parameters is
// updated as soon as its gradients have arrived. Where updates may be split, workers of one host each own a part of every bucket: they hold
// the optimizer's state of that part, update it, and hand the new parameters round. A reduce-scatter and an all-gather move as many bytes
// as an allreduce, and the update costs a share of the memory and of its traffic (Xu et al., "Automatic cross-replica sharding of weight
// update", 2020). The bits are the same.
#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/bucket_tuner.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/exchange.h"
#include "paceline/data_parallel/residual_carryover.h"
#include "paceline/data_parallel/statistics.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/momentum.h"
#include "paceline/step/recorded_step.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/all.h"

namespace paceline::strategies {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kBucketBytes = 8 * kMiB;  // where nothing is measured

class Allreduce final : public step::Strategy {
 public:
  Allreduce(const StrategyConfig& config, const step::Context& context)
      : config_(config),
        context_(context),
        pass_(context_),
        updater_(arena(), context.workers() > 1 ? step::optimizer_behind(context.compression, context.optim) : context.optim,
                 &context.comm()),
        exchange_(data_parallel::make_exchange(context_)),
        statistics_(context_, config.batch_norm, config.statistics),
        sharded_(wants_sharded()),
        backward_(context.model.device(), records()),
        update_(context.model.device(), records()),
        tuner_(cuts(), context.comm()),
        lane_(arena(), context.comm(), context.clock, [this](const data_parallel::Bucket& bucket) { return treat(bucket); }) {
    statistics_.synchronise(pass_);
    apply_cut();
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override {
    const step::PhaseSpan span(context_, "step");
    const Nanoseconds began = context_.clock.now();
    pass_.begin_step(point.step);
    exchange_->begin_step(point);
    updater_.begin_step({.rate = static_cast<float>(point.rate), .step = point.step});
    const auto announce = [this](std::size_t first, std::size_t last) { lane_.ready(first, last); };
    backward_.run(batch, [&] { sums_ = pass_.run(batch, batch.weight(context_.workers()), on_cpu() ? announce : nn::GradientReady()); });
    {
      const step::PhaseSpan wait(context_, lane_.overlaps() ? "wait for gradients" : "exchange");
      lane_.finish();
    }
    update_.run(batch, [&] {
      if (updates_at_the_end()) updater_.update_all();
      context_.model.refresh();
    });
    if (tuner_.measured(seconds(context_.clock.now() - began))) apply_cut();
    return {sums_, batch.targets.numel()};
  }

  void agree() override { statistics_.agree(); }
  void resume_training() override { statistics_.resume_training(); }

  std::vector<step::NamedTensor> save() override {
    std::vector<step::NamedTensor> state = updater_.state();
    for (auto& part : {exchange_->save(), statistics_.save()}) state.insert(state.end(), part.begin(), part.end());
    return state;
  }

  void load(std::span<const step::NamedTensor> saved) override {
    const std::vector<step::NamedTensor> state = data_parallel::with_momentum_in_place(context_, saved);
    updater_.load(state);
    exchange_->load(state);
    statistics_.load(state);
  }

  step::Traffic traffic() const override {
    return {.exposed_s = lane_.exposed_s(),
            .communication_s = lane_.busy_s(),
            .bytes_sent = exchange_->bytes_sent() + sharded_bytes_,
            .bytes_plain = exchange_->bytes_plain() + sharded_bytes_};
  }

 private:
  tensor::Arena& arena() { return context_.model.arena(); }
  bool on_cpu() const { return context_.model.device().is_cpu(); }
  bool records() const { return context_.record_steps && !statistics_.synchronised(); }
  bool updates_at_the_end() const { return updater_.clips() || !on_cpu(); }

  /// Whether an element's sum has the same bits however the arena is cut. Of three summands two are added first, and which two depends on
  /// where in its bucket the element lies (direct, ring), or on the algorithm that the bucket's length chooses.
  bool cut_keeps_bits() const { return context_.workers() <= 2; }

  /// Whether a reduce-scatter adds in the order of an allreduce: there is one order of two summands, and one algorithm for both where ranks
  /// share memory.
  bool scatter_keeps_bits() const {
    const bool direct = context_.comm().topology().hosts == 1 && context_.comm().engine() != "gloo" &&
                        (context_.algorithm == "auto" || context_.algorithm == "direct");
    return context_.workers() <= 2 || direct;
  }

  bool wants_sharded() {
    const bool can = updater_.elementwise() && !updater_.clips() && on_cpu() && context_.compression == "none" && context_.workers() > 1;
    if (config_.update == "sharded" && !can && context_.workers() > 1)
      throw ConfigError(
          "strategy.update=sharded needs an optimizer that updates every element by itself (sgd, adam, adamw), no optim.clip_norm, no "
          "comm.compression, and train.device=cpu; use strategy.update=whole");
    return can &&
           (config_.update == "sharded" || (config_.update == "auto" && context_.comm().topology().hosts == 1 && scatter_keeps_bits()));
  }

  /// The cuts to be tried; one where there is nothing to choose.
  std::vector<data_parallel::Cut> cuts() const {
    if (!on_cpu() || context_.workers() == 1) return {{0, false}};
    const bool many_hosts = context_.comm().topology().hosts > 1 || context_.shaped;
    const bool may_measure = context_.compression == "none" && (cut_keeps_bits() || !context_.repeatable);
    if (config_.bucket_mb > 0 || !may_measure) {
      const auto bytes = config_.bucket_mb > 0 ? static_cast<std::int64_t>(config_.bucket_mb * kMiB) : kBucketBytes;
      return {{bytes, config_.overlap == "on" || (config_.overlap == "auto" && many_hosts)}};
    }
    std::vector<data_parallel::Cut> tried;
    if (config_.overlap != "on") tried.insert(tried.end(), {{2 * kMiB, false}, {0, false}});
    if (config_.overlap != "off") tried.insert(tried.end(), {{2 * kMiB, true}, {8 * kMiB, true}, {25 * kMiB, true}});
    std::erase_if(tried, [&](const data_parallel::Cut& cut) { return cut.bytes >= context_.model.arena().length() * 4; });
    if (tried.empty()) tried.push_back({0, config_.overlap == "on"});
    return tried;
  }

  void apply_cut() {
    const data_parallel::Cut cut = tuner_.cut();
    lane_.configure(cut.bytes, cut.overlap);
    exchange_->prepare(lane_.buckets());
    arena().set_owners(tensor::Role::moment, owners());
    updater_.follow_owners();
  }

  /// Who updates what: everybody all of it, or each worker its part of every bucket.
  tensor::Owners owners() {
    if (!sharded_) return tensor::Owners(arena().length());
    std::vector<data_parallel::Bucket> ascending = lane_.buckets();
    std::ranges::sort(ascending, {}, &data_parallel::Bucket::begin);
    std::vector<tensor::OwnedRange> parts;
    for (const data_parallel::Bucket& bucket : ascending)
      for (int rank = 0; rank < context_.workers(); ++rank) {
        const schedule::Range part = schedule::part(bucket.count(), context_.workers(), rank);
        parts.push_back({bucket.begin + part.begin, bucket.begin + part.end, rank});
      }
    return tensor::Owners(parts);
  }

  /// Whoever updates an element needs its mean gradient, and everybody its parameter. Returns how long the update took.
  Nanoseconds treat(const data_parallel::Bucket& bucket) {
    const step::PhaseSpan span(context_, "bucket", "communication");
    const bool owned = !arena().owners(tensor::Role::moment).shared(bucket.begin, bucket.end);
    if (owned) scatter(bucket);
    else exchange_->average(bucket);
    if (updates_at_the_end()) return Nanoseconds(0);
    const Nanoseconds began = context_.clock.now();
    updater_.update(bucket.begin, bucket.end);
    const Nanoseconds spent = context_.clock.now() - began;
    if (owned) context_.comm().run(comm::all_gather(comm::Buffer(arena().parameters()).slice({bucket.begin, bucket.end})));
    return spent;
  }

  /// Every worker gets the mean of the gradients of its part.
  void scatter(const data_parallel::Bucket& bucket) {
    const comm::Buffer gradients = comm::Buffer(arena().gradients()).slice({bucket.begin, bucket.end});
    context_.comm().run(comm::reduce_scatter(gradients, {.op = comm::ReduceOp::mean}));
    sharded_bytes_ += data_parallel::allreduce_bytes(bucket.count() * 4, context_.workers());  // with the parameters on their way back
  }

  StrategyConfig config_;
  step::Context context_;
  step::LocalPass pass_;
  step::Updater updater_;
  std::unique_ptr<data_parallel::Exchange> exchange_;
  data_parallel::WorkerStatistics statistics_;
  bool sharded_;
  step::RecordedStep backward_, update_;
  data_parallel::BucketTuner tuner_;
  std::int64_t sharded_bytes_ = 0;
  at::Tensor sums_;
  data_parallel::BucketLane lane_;  // last: its thread uses everything above
};

}  // namespace

std::unique_ptr<step::Strategy> make_allreduce(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<Allreduce>(config, context);
}

}  // namespace paceline::strategies
