#include "paceline/strategies/unsaid.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/strategies/per_worker.h"

namespace paceline::strategies {

bool corrects_momentum(const std::string& compression) {
  return compression != "none" && find(compress::compressors(), "compression", compression).make.momentum_correction;
}

optim::OptimConfig optimizer_behind(const std::string& compression, optim::OptimConfig optim) {
  if (!corrects_momentum(compression)) return optim;
  if (optim.name != "sgd" || optim.nesterov)
    throw ConfigError(
        fmt::format("comm.compression={} carries the momentum of optim.name=sgd itself; set that, without nesterov", compression));
  optim.momentum = 0;  // the workers have it
  return optim;
}

std::vector<NamedTensor> with_momentum_in_place(const Context& context, std::span<const NamedTensor> state) {
  std::vector<NamedTensor> placed(state.begin(), state.end());
  const at::Tensor velocities = saved_or_none(state, kVelocity);
  if (!corrects_momentum(context.compression) || velocities.defined() == (context.workers() > 1)) return placed;

  const tensor::Arena& arena = context.module.arena();
  at::Tensor flat = at::zeros_like(arena.gradients());
  if (velocities.defined()) take_row(context.comm, velocities, flat, kVelocity);
  for (std::size_t i = 0; i < arena.entries().size(); ++i) {
    const std::string name = fmt::format("optim.momentum.{}", arena.entries()[i].name);
    at::Tensor momentum = arena.view(flat, i);
    if (velocities.defined()) {
      if (context.optim.momentum > 0) placed.push_back({name, momentum});
    } else if (const at::Tensor saved = saved_or_none(state, name); saved.defined()) {
      if (saved.sizes() != momentum.sizes())
        throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", name));
      momentum.copy_(saved);
      std::erase_if(placed, [&](const NamedTensor& item) { return item.name == name; });
    }
  }
  if (!velocities.defined()) placed.push_back({kVelocity, flat.unsqueeze(0)});
  return placed;
}

void Unsaid::say(std::int64_t begin, std::int64_t end) {
  if (!any()) return;
  const double factor = corrects_momentum(context_.compression) ? 1 - context_.optim.momentum : 1;
  at::Tensor part = residual_.narrow(0, begin, end - begin);
  context_.module.arena().gradients().narrow(0, begin, end - begin).add_(part, factor);
  part.zero_();
  if ((left_ -= end - begin) == 0) residual_.reset();
}

std::vector<NamedTensor> Unsaid::save() const {
  if (!any()) return {};
  return {{kResidual, residual_.unsqueeze(0)}};
}

void Unsaid::load(std::span<const NamedTensor> state) {
  const at::Tensor rows = saved_or_none(state, kResidual), second = saved_or_none(state, kSecondResidual);
  if (!rows.defined() || context_.compression == "none") return;
  residual_ = at::zeros_like(context_.module.arena().gradients());
  left_ = residual_.numel();
  take_row(context_.comm, rows, residual_, kResidual);
  if (second.defined()) residual_.add_(second.sum(0).to(residual_.device()));
}

}  // namespace paceline::strategies
