#include "paceline/pipeline/pipeline_pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/graph/stages.h"
#include "paceline/step/local_pass.h"

namespace paceline::pipeline {

using schedule::PipelineStep;
using Kind = PipelineStep::Kind;

std::unique_ptr<step::BatchPass> make_pass(const step::Context& context) {
  if (context.mesh.pipeline().size() == 1) return std::make_unique<step::LocalPass>(context);
  return std::make_unique<PipelinePass>(context);
}

PipelinePass::PipelinePass(const step::Context& context)
    : context_(context),
      schedule_(find(schedule::pipelines(), "pipeline schedule", context.pipeline.schedule)),
      ranks_(context.mesh.pipeline().size()),
      rank_(context.mesh.pipeline().rank()),
      chunks_(schedule::resolve_chunks(schedule_, context.pipeline.chunks)),
      stages_(context.pipeline.stages),
      tied_(context),
      borders_(context.mesh.pipeline(), context.model.device(), context.clock) {
  check(schedule_, problem(1));
  ensure(std::ssize(stages_) == problem(1).virtual_stages(), "the model is cut into as many stages as the schedule has");
  if (context.model.takes_masks()) masks_ = nn::make_masks(context.model.device());
  pass_.masks = masks_.get();
  zero_others();
}

// A model may have weights of units that other ranks compute. Their gradients stay zero.
void PipelinePass::zero_others() {
  const std::vector<nn::Units> own = graph::held_by(stages_, ranks_, rank_);
  const std::vector<nn::Unit>& units = context_.model.units();
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    if (std::ranges::none_of(own, [&](const nn::Units& range) { return range.first <= unit && unit < range.last; }))
      for (std::size_t entry = units[unit].first_entry; entry < units[unit].last_entry; ++entry)
        context_.model.arena().gradient(entry).zero_();
}

bool PipelinePass::scores() const { return rank_ == ranks_ - 1; }

schedule::PipelineProblem PipelinePass::problem(std::int64_t parts) const {
  return {.stages = ranks_, .micro_batches = static_cast<int>(parts), .chunks = chunks_};
}

void PipelinePass::begin_step(std::int64_t step) {
  const auto worker = static_cast<std::uint64_t>(context_.rank());
  const std::uint64_t seeded_step = masks_ && context_.model.uses_chance() ? masks_->begin_step(step) : static_cast<std::uint64_t>(step);
  chance_ = RandomStream(context_.seed, Purpose::dropout, worker, seeded_step).next_u64();
  if (masks_ || !context_.model.uses_chance()) return;
  at::Generator generator = at::globalContext().defaultGenerator(context_.model.device());
  generator.set_current_seed(chance_);
}

const schedule::PipelineSteps& PipelinePass::steps_for(std::int64_t parts, bool evaluates) {
  schedule::PipelineSteps& steps = steps_[{parts, evaluates}];
  if (steps.empty() && parts > 0) {
    steps = steps_of(schedule_, problem(parts), rank_);
    if (evaluates) std::erase_if(steps, [](const PipelineStep& step) { return step.kind != Kind::forward; });
  }
  return steps;
}

class PipelinePass::Round {
 public:
  Round(PipelinePass& owner, const step::Batch& batch, std::int64_t parts, bool evaluates)
      : owner_(owner),
        model_(owner.context_.model),
        batch_(batch),
        problem_(owner.problem(parts)),
        steps_(owner.steps_for(parts, evaluates)),
        evaluates_(evaluates),
        flights_(static_cast<std::size_t>(parts * problem_.chunks)) {
    const std::int64_t sums = 2 + (evaluates ? std::ssize(owner.context_.loss->metrics()) : 0);
    sums_ = at::zeros({sums}, at::TensorOptions().dtype(at::kDouble).device(model_.device()));
  }

  at::Tensor fly(double weight, const nn::GradientReady& ready, const std::function<void(const at::Tensor&)>& told) {
    weight_ = weight;
    std::vector<Crossing> crossings;
    for (const PipelineStep& step : steps_)
      if (const auto message = received(problem_, owner_.rank_, step); message && computes(step))
        crossings.push_back({*message, part_of(step).count});
    owner_.borders_.expect(crossings);
    if (owner_.tied_.here() && std::ranges::any_of(steps_, [&](const PipelineStep& step) { return computes(step); })) prepare_tied();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const PipelineStep& step = steps_[i];
      next_receives_ = i + 1 < steps_.size() && received(problem_, owner_.rank_, steps_[i + 1]) && computes(steps_[i + 1]);
      if (!computes(step)) sit_out(step, ready);
      else if (step.kind == Kind::forward) forward(step, weight);
      else if (step.kind == Kind::weight_gradients) make_weight_gradients(step, ready);
      else back(step, ready, told);
    }
    owner_.borders_.forget_done();
    return sums_;
  }

 private:
  /// One micro-batch on one of the rank's stages, between its forward pass and the end of its backward pass.
  struct Flight {
    nn::Trace trace;
    nn::Tensors gradients;  // of the loss, on the last stage
  };

  int stage_of(const PipelineStep& step) const { return step.chunk * problem_.stages + owner_.rank_; }
  nn::Units units_of(const PipelineStep& step) const { return owner_.stages_[static_cast<std::size_t>(stage_of(step))]; }
  bool first(const PipelineStep& step) const { return stage_of(step) == 0; }
  bool last(const PipelineStep& step) const { return stage_of(step) + 1 == problem_.virtual_stages(); }
  bool last_micro_batch(const PipelineStep& step) const { return step.micro_batch + 1 == problem_.micro_batches; }
  Flight& flight_of(const PipelineStep& step) {
    return flights_[static_cast<std::size_t>(step.chunk * problem_.micro_batches + step.micro_batch)];
  }
  step::MicroBatch part_of(const PipelineStep& step) const {
    return step::micro_batch(batch_.inputs.size(0), problem_.micro_batches, step.micro_batch);
  }

  /// Whether the model runs: a rank without samples runs it only if data-parallel workers communicate in its layers.
  bool computes(const PipelineStep& step) const { return part_of(step).count > 0 || model_.exchanges_samples(); }

  nn::Pass pass_of(const PipelineStep& step) const {
    nn::Pass pass = owner_.pass_;
    pass.training = !evaluates_;
    pass.weight = weight_;
    if (model_.exchanges_samples()) pass.shares = owner_.shares_of(batch_, problem_.micro_batches, step.micro_batch);
    pass.accumulate = step.micro_batch > 0;
    pass.chance = nn::chance_of(owner_.chance_, static_cast<std::uint64_t>(step.micro_batch));
    if (evaluates_) pass.sum_over_workers = nullptr;
    return pass;
  }

  /// On the first stage, the table is in memory only while its first unit computes, because ZeRO 3 gathers it.
  void prepare_tied() {
    if (!owner_.tied_.trains()) return owner_.tied_.pass_values();
    hooks_.before_forward = [this](std::size_t unit) {
      if (unit == 0 && !std::exchange(tied_sent_, true)) owner_.tied_.pass_values();
    };
  }

  nn::Tensors take(const char* what) {
    const step::PhaseSpan span(owner_.context_, what);
    return owner_.borders_.take();
  }

  /// A micro-batch without samples: the ranks of the data axis may still communicate in its passes.
  void sit_out(const PipelineStep& step, const nn::GradientReady& ready) {
    if (step.kind == Kind::forward) return model_.sit_out_run(units_of(step), /*trained=*/!evaluates_);
    nn::Pass pass = pass_of(step);
    if (step.kind == Kind::weight_gradients) pass.accumulate = true;  // gradients that must be zero were zeroed before others were added
    const bool complete = frees(step.kind) && last_micro_batch(step);
    model_.sit_out_back(units_of(step), pass, complete ? ready : nullptr);
  }

  /// Before a step computes, starts receiving what the next one needs.
  void receive_ahead() {
    if (next_receives_) owner_.borders_.receive_ahead();
  }

  void hand_on(const PipelineStep& step, const nn::Tensors& tensors) {
    if (const auto message = sent(problem_, owner_.rank_, step)) owner_.borders_.send({*message, part_of(step).count}, tensors);
  }

  void forward(const PipelineStep& step, double weight) {
    const auto [begin, count] = part_of(step);
    nn::Tensors inputs = first(step) ? nn::Tensors{batch_.inputs.narrow(0, begin, count)} : take("wait for activations");
    receive_ahead();
    nn::Tensors outputs;
    {
      const step::PhaseSpan span(owner_.context_, "forward");
      nn::Pass pass = pass_of(step);
      pass.hooks = &hooks_;
      outputs = model_.run(units_of(step), std::move(inputs), pass, evaluates_ ? nullptr : &flight_of(step).trace);
    }
    if (last(step)) score(step, outputs.at(0), batch_.targets.narrow(0, begin, count), weight);
    else hand_on(step, outputs);
  }

  void score(const PipelineStep& step, const at::Tensor& output, const at::Tensor& targets, double weight) {
    const nn::Loss& loss = *owner_.context_.loss;
    if (output.size(0) == 0) {
      flight_of(step).gradients = {at::zeros_like(output)};
      return;
    }
    if (evaluates_) {
      sums_ = sums_ + loss.evaluate(output, targets);
      return;
    }
    const nn::Scored scored = loss.score(output, targets, weight);
    sums_ = sums_ + scored.sums;
    flight_of(step).gradients = {scored.gradient};
  }

  void back(const PipelineStep& step, const nn::GradientReady& ready, const std::function<void(const at::Tensor&)>& told) {
    const bool whole = step.kind == Kind::backward;
    Flight& flight = flight_of(step);
    nn::Tensors gradients = last(step) ? std::move(flight.gradients) : take("wait for gradients");
    if (told && last_micro_batch(step) && step.chunk == problem_.chunks - 1) told(sums_);
    receive_ahead();
    nn::Tensors inputs;
    {
      const step::PhaseSpan span(owner_.context_, "backward");
      inputs = model_.back(units_of(step), std::move(gradients), pass_of(step), flight.trace, {.inputs = !first(step), .weights = whole},
                           whole && last_micro_batch(step) ? ready : nullptr);
    }
    if (whole) flight = {};
    hand_on(step, inputs);
  }

  void make_weight_gradients(const PipelineStep& step, const nn::GradientReady& ready) {
    receive_ahead();
    const step::PhaseSpan span(owner_.context_, "weight gradients");
    model_.weight_gradients(units_of(step), pass_of(step), flight_of(step).trace, last_micro_batch(step) ? ready : nullptr);
    flight_of(step) = {};
  }

  PipelinePass& owner_;
  nn::Model& model_;
  const step::Batch& batch_;
  const schedule::PipelineProblem problem_;
  const schedule::PipelineSteps& steps_;
  const bool evaluates_;
  std::vector<Flight> flights_;  // by chunk and micro-batch
  at::Tensor sums_;
  double weight_ = 0;
  bool next_receives_ = false;
  nn::UnitHooks hooks_;  // of forward passes
  bool tied_sent_ = false;
};

// Like LocalPass: the workers share a batch as data::Sampler does. Layers that communicate draw no random numbers.
std::vector<nn::Share> PipelinePass::shares_of(const step::Batch& batch, std::int64_t parts, std::int64_t part) const {
  std::vector<nn::Share> shares;
  for (int rank = 0; rank < context_.workers(); ++rank) {
    const std::int64_t samples = step::micro_batch(batch.global_samples, context_.workers(), rank).count;
    shares.push_back({.samples = step::micro_batch(samples, parts, part).count});
  }
  return shares;
}

// Workers that gather their parameters (ZeRO 3) or exchange samples communicate in every micro-batch, so all make the same number of them,
// some perhaps without samples.
std::int64_t PipelinePass::micro_batches_of(const step::Batch& batch) const {
  const std::int64_t samples = batch.inputs.size(0);
  if (!context_.model.workers_meet()) return std::min(context_.micro_batches, samples);
  const std::int64_t largest = (batch.global_samples + context_.workers() - 1) / context_.workers();  // share
  return std::min(context_.micro_batches, std::max(samples, largest));
}

/// Zeroes all gradients, stage by stage, since under ZeRO 2 they have memory only while the model provides it.
void PipelinePass::sit_out(const nn::GradientReady& ready) {
  const std::vector<nn::Units> own = graph::held_by(stages_, ranks_, rank_);
  for (auto units = own.rbegin(); units != own.rend(); ++units) context_.model.sit_out_back(*units, pass_, ready);
}

/// Whatever fails in a pass, nothing of it stays in flight.
template <class Body>
at::Tensor PipelinePass::or_abandon(Body&& body) {
  try {
    return body();
  } catch (...) {
    abandon();
    throw;
  }
}

at::Tensor PipelinePass::run(const step::Batch& batch, double weight, const nn::GradientReady& ready,
                             const std::function<void(const at::Tensor&)>& told) {
  const step::TrafficMeter meter(context_.model, *context_.loss);
  const double waited = waited_s();
  const std::int64_t sent = bytes_sent(), parts = micro_batches_of(batch);
  const at::Tensor sums = or_abandon([&] {
    if (parts == 0) sit_out(ready);
    const at::Tensor made = Round(*this, batch, parts, false).fly(weight, tied_.all_but_tied(ready), told);
    if (tied_.here() && parts > 0) tied_.add_gradients(ready);
    if (handed_over_) handed_over_();
    return made;
  });
  traffic_ += meter.sent();
  traffic_.exposed_s += waited_s() - waited, traffic_.communication_s += waited_s() - waited;
  const std::int64_t bytes = bytes_sent() - sent;
  traffic_.bytes_sent += bytes, traffic_.bytes_plain += bytes, traffic_.bytes_pipeline += bytes;
  return sums;
}

at::Tensor PipelinePass::evaluate(const step::Batch& batch) {
  return or_abandon([&] { return Round(*this, batch, micro_batches_of(batch), true).fly(0, nullptr, nullptr); });
}

}  // namespace paceline::pipeline
