#include "paceline/step/local_pass.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "paceline/base/random.h"

namespace paceline::step {

LocalPass::LocalPass(const Context& context) : context_(context) {
  if (context.model.device().is_cpu() && context.model.takes_generator()) pass_.generator = at::make_generator<at::CPUGeneratorImpl>();
}

void LocalPass::begin_step(std::int64_t step) {
  step_ = step;
  if (!context_.model.uses_chance()) return;
  const auto rank = static_cast<std::uint64_t>(context_.rank());
  const std::uint64_t seed = RandomStream(context_.seed, Purpose::dropout, rank, static_cast<std::uint64_t>(step)).next_u64();
  at::Generator generator = pass_.generator.defined() ? pass_.generator : at::globalContext().defaultGenerator(context_.model.device());
  generator.set_current_seed(seed);
}

at::Tensor LocalPass::run(const Batch& batch, double weight, const nn::GradientReady& ready,
                          const std::function<void(const at::Tensor&)>& told) {
  nn::Model& module = context_.model;
  const std::int64_t samples = batch.inputs.size(0), parts = std::min(context_.micro_batches, samples);
  if (parts == 0) {
    module.arena().gradients().zero_();
    return at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(module.device()));
  }
  at::Tensor sums;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = samples * part / parts, count = samples * (part + 1) / parts - begin;
    pass_.accumulate = part > 0;
    const at::Tensor inputs = batch.inputs.narrow(0, begin, count);
    nn::Trace trace;
    at::Tensor output;
    {
      const PhaseSpan span(context_, "forward");
      output = module.run(inputs, pass_, &trace);
    }
    const nn::Scored scored = context_.loss->score(output, batch.targets.narrow(0, begin, count), weight);
    if (context_.on_not_finite && module.device().is_cpu() && !std::isfinite(*scored.sums.data_ptr<double>()))
      context_.on_not_finite(module, inputs, step_);
    sums = sums.defined() ? sums + scored.sums : scored.sums;
    if (told && part + 1 == parts) told(sums);
    const PhaseSpan span(context_, "backward");
    module.back(scored.gradient, pass_, trace, part + 1 == parts ? ready : nullptr);
  }
  return sums;
}

void Batch::copy_from(const Batch& other) {
  if (!inputs.defined() || inputs.sizes() != other.inputs.sizes()) inputs = other.inputs.clone(), targets = other.targets.clone();
  else inputs.copy_(other.inputs), targets.copy_(other.targets);
  global_samples = other.global_samples;
}

double Batch::weight(int workers) const {
  const std::int64_t samples = inputs.size(0);
  // Every sample has as many targets as any other: one, or one a position.
  const double per_sample = samples > 0 ? static_cast<double>(targets.numel()) / static_cast<double>(samples) : 1;
  const std::int64_t all = global_samples > 0 ? global_samples : samples;
  return static_cast<double>(workers) / (static_cast<double>(all) * per_sample);
}

}  // namespace paceline::step
