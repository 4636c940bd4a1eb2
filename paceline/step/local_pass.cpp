#include "paceline/step/local_pass.h"

#include <ATen/ATen.h>

#include <cmath>

#include "paceline/base/random.h"
#include "paceline/tensor/device.h"

namespace paceline::step {

LocalPass::LocalPass(const Context& context, nn::Model& model) : context_(context), model_(model) {
  if (model.takes_masks()) masks_ = nn::make_masks(model.device());
  pass_.masks = masks_.get();
}

void LocalPass::begin_step(std::int64_t step) {
  step_ = step;
  if (!model_.uses_chance()) return;
  seeded_step_ = masks_ ? masks_->begin_step(step) : static_cast<std::uint64_t>(step);
  chance_ = chance_of_worker(context_.rank());
  if (masks_) return;
  at::Generator generator = at::globalContext().defaultGenerator(model_.device());
  generator.set_current_seed(chance_);
}

std::uint64_t LocalPass::chance_of_worker(int rank) const {
  return RandomStream(context_.seed, Purpose::dropout, static_cast<std::uint64_t>(rank), seeded_step_).next_u64();
}

// The workers divide a batch as data::Sampler does, and each divides its share as run() does.
std::vector<nn::Share> LocalPass::shares_of(const Batch& batch, std::int64_t parts, std::int64_t part) const {
  std::vector<nn::Share> shares;
  for (int rank = 0; rank < context_.workers(); ++rank) {
    const std::int64_t samples = micro_batch(batch.global_samples, context_.workers(), rank).count;
    shares.push_back({.samples = micro_batch(samples, parts, part).count,
                      .chance = nn::chance_of(chance_of_worker(rank), static_cast<std::uint64_t>(part))});
  }
  return shares;
}

std::int64_t LocalPass::parts_of(const Batch& batch) const {
  const std::int64_t samples = batch.inputs.size(0);
  if (!handed_over_ && !model_.workers_meet()) return std::min(context_.micro_batches, samples);
  const std::int64_t largest = (batch.global_samples + context_.workers() - 1) / context_.workers();  // share
  return std::min(context_.micro_batches, std::max(samples, largest));
}

at::Tensor LocalPass::run(const Batch& batch, double weight, const nn::GradientReady& ready,
                          const std::function<void(const at::Tensor&)>& told) {
  meter_.emplace(model_, *context_.loss);
  nn::Model& module = model_;
  const std::int64_t samples = batch.inputs.size(0), parts = parts_of(batch);
  const auto nothing = [&] { return at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(module.device())); };
  if (parts == 0) {
    module.arena().gradients().zero_();
    last_ = {};
    return nothing();
  }
  pass_.weight = weight;
  at::Tensor sums, suspect;  // the first micro-batch whose loss is not finite
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto [begin, count] = micro_batch(samples, parts, part);
    const bool last = part + 1 == parts;
    pass_.accumulate = part > 0 && !handed_over_;
    pass_.chance = nn::chance_of(chance_, static_cast<std::uint64_t>(part));
    if (exchanges()) pass_.shares = shares_of(batch, parts, part);
    const at::Tensor inputs = batch.inputs.narrow(0, begin, count);
    nn::Trace trace;
    nn::Scored scored;
    if (count > 0 || exchanges()) {
      const PhaseSpan span(context_, "forward");
      const at::Tensor output = module.run(inputs, pass_, &trace);
      if (count > 0) scored = context_.loss->score(output, batch.targets.narrow(0, begin, count), weight);
      else scored = {.sums = nothing(), .gradient = at::zeros_like(output)};
      sums = sums.defined() ? sums + scored.sums : scored.sums;
    } else {
      if (!sums.defined()) sums = nothing();
      module.sit_out_run(module.all(), /*trained=*/true);
    }
    if (looks() && count > 0 && !suspect.defined() && !std::isfinite(*scored.sums.data_ptr<double>())) suspect = inputs;
    if (last) diagnose(suspect, inputs);
    if (told && last) told(sums);
    const PhaseSpan span(context_, "backward");
    const nn::GradientReady& listener = last || handed_over_ ? ready : nobody_;
    if (count > 0 || exchanges()) module.back(scored.gradient, pass_, trace, listener);
    else module.sit_out_back(module.all(), pass_, listener);
    if (handed_over_) handed_over_();
  }
  last_ = meter_->sent();
  traffic_ += last_;
  return sums;
}

// How long ranks wait for each other in a recorded step is measured in its first replay, and assumed for all replays.
void LocalPass::was_recorded() {
  if (context_.mesh.tensor().size() == 1) return;
  tensor::synchronize(model_.device());
  const Traffic measured = meter_->sent();
  traffic_.exposed_s += measured.exposed_s - last_.exposed_s, traffic_.communication_s += measured.communication_s - last_.communication_s;
  last_ = measured;
}

// A diagnosis runs collectives where workers gather parameters or exchange samples, so all workers must enter it: they vote once per step.
void LocalPass::diagnose(const at::Tensor& suspect, const at::Tensor& inputs) const {
  nn::Model& module = model_;
  if (!looks()) return;
  std::vector<std::int32_t> any = {suspect.defined() ? 1 : 0};
  if (module.workers_meet() && context_.workers() > 1) context_.comm().run(comm::allreduce(any, {.op = comm::ReduceOp::max}));
  if (suspect.defined()) context_.on_not_finite(module, suspect, step_);
  else if (any[0] > 0) module.take_part(inputs, /*training=*/true);
}

at::Tensor LocalPass::evaluate(const Batch& batch) {
  nn::Pass pass;
  pass.training = false;
  if (exchanges()) pass.shares = shares_of(batch, 1, 0);
  if (batch.inputs.size(0) > 0) return context_.loss->evaluate(model_.run(batch.inputs, pass, nullptr), batch.targets);
  if (exchanges()) model_.run(batch.inputs, pass, nullptr);
  else model_.sit_out_run(model_.all(), /*trained=*/false);
  const std::int64_t sums = 2 + std::ssize(context_.loss->metrics());
  return at::zeros({sums}, at::TensorOptions().dtype(at::kDouble).device(model_.device()));
}

Traffic& Traffic::operator+=(const Traffic& other) {
  exposed_s += other.exposed_s, communication_s += other.communication_s;
  bytes_sent += other.bytes_sent, bytes_plain += other.bytes_plain;
  bytes_pipeline += other.bytes_pipeline, bytes_tensor += other.bytes_tensor;
  return *this;
}

nn::Traffic TrafficMeter::now() const {
  nn::Traffic traffic = model_.traffic();
  return traffic += loss_.traffic();
}

Traffic TrafficMeter::sent() const {
  const nn::Traffic after = now();
  const std::int64_t data = after.bytes_data - before_.bytes_data, tensor = after.bytes_tensor - before_.bytes_tensor;
  return {.exposed_s = after.waited_s - before_.waited_s,
          .communication_s = after.busy_s - before_.busy_s,
          .bytes_sent = data + tensor,
          .bytes_plain = data + tensor,
          .bytes_tensor = tensor};
}

void Batch::copy_from(const Batch& other) {
  if (!inputs.defined() || inputs.sizes() != other.inputs.sizes()) inputs = other.inputs.clone(), targets = other.targets.clone();
  else inputs.copy_(other.inputs), targets.copy_(other.targets);
  global_samples = other.global_samples;
}

double Batch::weight(int workers) const {
  const std::int64_t samples = inputs.size(0);
  // All samples have the same number of targets: one, or one per position.
  const double per_sample = samples > 0 ? static_cast<double>(targets.numel()) / static_cast<double>(samples) : 1;
  const std::int64_t all = global_samples > 0 ? global_samples : samples;
  return static_cast<double>(workers) / (static_cast<double>(all) * per_sample);
}

}  // namespace paceline::step
