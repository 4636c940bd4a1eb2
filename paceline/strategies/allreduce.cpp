// Synchronous data parallelism: every worker computes the gradient of its share of the batch, an allreduce averages the gradients, and all
// make the same update. w ← w − γ · mean over samples ∇ℓ: the update of one worker with the whole batch, whatever the number of workers.
//
// Gradients are sent in buckets while the backward pass continues (buckets.h), compressed or not (exchange.h), and each range of parameters
// is updated as soon as its mean gradient has arrived. If updates are sharded (parallel.zero, or on one host where that costs nothing),
// each worker owns a part of every bucket: it holds the optimizer's state of that part, updates it, and sends the new parameters to the
// others. A reduce-scatter and an all-gather move as many bytes as an allreduce, and the update then takes only a share of the memory and
// its bandwidth (Xu et al., "Automatic cross-replica sharding of weight update", 2020; stage 1 of ZeRO, Rajbhandari et al., 2020). From
// stage 2 on a bucket's gradients are reduced in the middle of every micro-batch's pass and released; in stage 3 its parameters stay with
// their owners, and the model gathers them (sharded/).
//
// A private entry (tensor/arena.h) is in no bucket: its gradient already sums all workers' samples, and only its own worker updates it.
// allreduce_program.cpp describes the step as data.

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/bucket_tuner.h"
#include "paceline/data_parallel/exchange.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/norm_statistics.h"
#include "paceline/data_parallel/residual_carryover.h"
#include "paceline/pipeline/pipeline_pass.h"
#include "paceline/schedule/cost.h"
#include "paceline/sharded/ownership.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/loss_scale.h"
#include "paceline/step/momentum.h"
#include "paceline/step/recorded_step.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/allreduce_choices.h"

namespace paceline::strategies {
namespace {

class Allreduce final : public step::Strategy {
 public:
  Allreduce(const StrategySettings& config, const step::Context& context)
      : context_(context),
        own_(config.allreduce),
        pass_(pipeline::make_pass(context_)),
        updater_(shared_out_arena(), context.workers() > 1 ? step::optimizer_behind(context.compression, context.optim) : context.optim,
                 &context.mesh, context.offload),
        scale_(context_),
        exchange_(data_parallel::make_exchange(context_, own_.bf16_gradients)),
        statistics_(context_, config.batch_norm, config.statistics),
        choices_(choose(config, facts())),
        private_(arena().ranges(/*are_private=*/true)),
        backward_(context, records()),
        update_(context.model.device(), records() && !updater_.meets()),
        tuner_(choices_.cuts, context.comm()),
        lane_(
            arena(), context.comm(), context.clock, [this](const data_parallel::Bucket& bucket) { return treat(bucket); }, begin()) {
    statistics_.synchronise(*pass_);
    if (stage() >= 2) pass_->hand_over([this] { finish_part(); });
    apply_cut();
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override {
    const step::PhaseSpan span(context_, "step");
    const Nanoseconds began = context_.clock.now();
    pass_->begin_step(point.step);
    exchange_->begin_step(point);
    updater_.begin_step(
        {.rate = static_cast<float>(point.rate), .gradient_scale = static_cast<float>(1 / scale_.scale()), .step = point.step});
    const auto announce = [this](std::size_t first, std::size_t last) { lane_.ready(first, last); };
    part_ = 0, parts_ = stage() >= 2 ? pass_->parts_of(batch) : 1;
    const at::Tensor sums = backward_.result(batch, *pass_, [&] {
      const bool announces = on_cpu() || stage() >= 2;  // a recorded step can send nothing in the middle of its pass
      return pass_->run(batch, batch.weight(scale_.divisor(context_.workers())) * scale_.scale(),
                        announces ? announce : nn::GradientReady());
    });
    if (stage() < 2) finish_part();
    update_.run(batch, [&] {
      if (updates_at_the_end() && (!scale_.on() || scale_.accepts(updater_.finite()))) updater_.update_all();
      if (updates_at_the_end())
        for (const data_parallel::Bucket& bucket : lane_.buckets()) hand_round(bucket);
      context_.model.refresh();
    });
    if (tuner_.measured(seconds(context_.clock.now() - began))) apply_cut();
    return {sums, batch.targets.numel()};
  }

  void agree() override { statistics_.agree(); }
  void resume_training() override { statistics_.resume_training(); }

  std::vector<step::NamedTensor> save() override {
    std::vector<step::NamedTensor> state = updater_.state();
    for (auto& part : {exchange_->save(), statistics_.save(), scale_.save()}) state.insert(state.end(), part.begin(), part.end());
    return state;
  }

  void load(std::span<const step::NamedTensor> saved) override {
    const std::vector<step::NamedTensor> state = data_parallel::with_momentum_in_place(context_, saved);
    updater_.load(state);
    exchange_->load(state);
    statistics_.load(state);
    scale_.load(state);
  }
  void abandon() override { pass_->abandon(); }
  std::int64_t skipped_steps() const override { return scale_.skipped(); }

  step::Traffic traffic() const override {
    step::Traffic traffic = pass_->traffic();
    return traffic += {.exposed_s = lane_.exposed_s(),
                       .communication_s = lane_.busy_s(),
                       .bytes_sent = exchange_->bytes_sent() + sharded_bytes_,
                       .bytes_plain = exchange_->bytes_plain() + sharded_bytes_};
  }

 private:
  tensor::Arena& arena() { return context_.model.arena(); }
  bool on_cpu() const { return context_.model.device().is_cpu(); }
  bool records() const {
    return context_.record_steps && !statistics_.synchronised() && !choices_.sharded && !scale_.on() && private_.empty() &&
           !context_.offload;
  }
  bool updates_at_the_end() const { return choices_.updates_at_end; }
  int stage() const { return context_.workers() > 1 ? own_.zero : 0; }

  AllreduceFacts facts() {
    const auto& entries = arena().entries();
    const auto found = std::ranges::find_if(entries, &tensor::Entry::is_private);
    return {.workers = context_.workers(),
            .hosts = context_.comm().topology().hosts,
            .tensor = context_.mesh.tensor().size(),
            .on_cpu = on_cpu(),
            .direct_sums = comm::engine_of(context_.comm().engine()).shares_memory && schedule::runs_in_shared_memory(own_.algorithm),
            .shaped = own_.shaped,
            .repeatable = context_.repeatable,
            .elementwise = updater_.elementwise(),
            .clips = updater_.clips(),
            .scales_loss = scale_.on(),
            .zero = stage(),
            .compression = context_.compression,
            .bf16_gradients = own_.bf16_gradients,
            .private_entry = found == entries.end() ? "" : found->name,
            .bytes = arena().length() * 4};
  }

  void apply_cut() {
    const data_parallel::BucketPlan cut = tuner_.cut();
    const auto now = stage() >= 2 ? data_parallel::Leave::in_pass : data_parallel::Leave::after_pass;
    lane_.configure(buckets_of(cut), cut.overlap ? data_parallel::Leave::beside_pass : now);
    exchange_->prepare(lane_.buckets());
    share_out(lane_.buckets(), choices_.sharded);
    updater_.follow_owners();
  }

  std::vector<data_parallel::Bucket> buckets_of(const data_parallel::BucketPlan& cut) {
    return cut.by_unit ? data_parallel::unit_buckets(arena()) : data_parallel::cut_buckets(arena(), cut.bytes);
  }

  /// Who updates what: every worker everything, or each worker its part of every bucket.
  void share_out(const std::vector<data_parallel::Bucket>& buckets, bool sharded) {
    const tensor::Owners everybody(arena().length());
    const tensor::Owners owners = sharded ? sharded::part_owners(arena(), buckets, context_.workers()) : everybody;
    arena().set_owners(tensor::Role::moment, owners);
    arena().set_owners(tensor::Role::gradient, stage() >= 2 ? owners : everybody);
  }

  /// On a GPU with a single bucket plan, this avoids allocating the whole state before dividing it; on the CPU, pages are only allocated
  /// when they are touched.
  tensor::Arena& shared_out_arena() {
    if (stage() > 0 && !on_cpu()) share_out(buckets_of({0, false, stage() >= 2}), /*sharded=*/true);
    return arena();
  }

  /// A pass is over; from stage 2 on, the pass of one micro-batch.
  void finish_part() {
    const step::PhaseSpan wait(context_, lane_.overlaps() ? "wait for gradients" : "exchange");
    lane_.finish();
    for (const tensor::OwnedRange& range : private_) treat_private(range);
    ++part_;
  }

  void treat_private(const tensor::OwnedRange& range) {
    arena().gradients().narrow(0, range.begin, range.count()).div_(scale_.divisor(context_.workers()));
    if (stage() >= 2) {
      updater_.keep_gradients(range.begin, range.end, /*add=*/part_ > 0);
      arena().release(tensor::Role::gradient, range.begin, range.end);
    }
    if (!updates_at_the_end() && part_ + 1 == parts_) updater_.update(range.begin, range.end);
  }

  /// Whether the bucket is divided among the workers. What it needs follows from that alone.
  bool divided(tensor::Role role, const data_parallel::Bucket& b) { return !arena().owners(role).shared(b.begin, b.end); }

  /// The worker that updates an element needs its mean gradient, and all workers need the new parameter. Returns how long the update took.
  Nanoseconds treat(const data_parallel::Bucket& bucket) {
    const step::PhaseSpan span(context_, "bucket", "communication");
    if (divided(tensor::Role::moment, bucket)) scatter(bucket);
    else exchange_->average(bucket);
    if (updates_at_the_end() || part_ + 1 < parts_) return Nanoseconds(0);
    const Nanoseconds began = context_.clock.now();
    updater_.update(bucket.begin, bucket.end);
    const Nanoseconds spent = context_.clock.now() - began;
    hand_round(bucket);
    return spent;
  }

  /// In stage 2 a bucket is in flight while the next one is computed. In stage 3, whose buckets are units, that would take too much memory.
  data_parallel::BucketLane::Begin begin() {
    if (stage() != 2 || !on_cpu() || own_.bf16_gradients) return nullptr;
    return [this](const data_parallel::Bucket& bucket) { exchange_->begin_scatter(bucket); };
  }

  /// Every worker gets the mean gradient of its part, and keeps no others that are not its own.
  void scatter(const data_parallel::Bucket& bucket) {
    exchange_->scatter(bucket);
    if (!divided(tensor::Role::gradient, bucket)) return;
    updater_.keep_gradients(bucket.begin, bucket.end, /*add=*/part_ > 0);
    arena().release(tensor::Role::gradient, bucket.begin, bucket.end);
  }

  /// What its owners updated, if all workers hold it.
  void hand_round(const data_parallel::Bucket& bucket) {
    if (!divided(tensor::Role::moment, bucket) || divided(tensor::Role::parameter, bucket)) return;
    const comm::Buffer parameters = comm::Buffer(arena().parameters()).slice({bucket.begin, bucket.end});
    context_.comm().run(comm::all_gather(parameters));
    sharded_bytes_ += sharded::scatter_bytes(parameters.bytes(), context_.workers());
  }

  step::Context context_;
  AllreduceSettings own_;
  std::unique_ptr<step::BatchPass> pass_;
  step::Updater updater_;
  step::LossScale scale_;
  std::unique_ptr<data_parallel::Exchange> exchange_;
  data_parallel::WorkerStatistics statistics_;
  AllreduceChoices choices_;
  std::vector<tensor::OwnedRange> private_;  // entries that only this worker has
  step::RecordedStep backward_, update_;
  data_parallel::BucketTuner tuner_;
  std::int64_t sharded_bytes_ = 0;
  std::int64_t part_ = 0, parts_ = 1;  // micro-batches whose gradients are reduced one by one
  data_parallel::BucketLane lane_;     // last: its thread uses everything above
};

}  // namespace

std::unique_ptr<step::Strategy> make_allreduce(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Allreduce>(config, context);
}

}  // namespace paceline::strategies
