#include "paceline/data_parallel/residual_carryover.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/step/momentum.h"

namespace paceline::data_parallel {

std::vector<step::NamedTensor> with_momentum_in_place(const step::Context& context, std::span<const step::NamedTensor> state) {
  std::vector<step::NamedTensor> placed(state.begin(), state.end());
  const at::Tensor velocities = step::saved_or_none(state, kVelocity);
  if (!step::corrects_momentum(context.compression) || velocities.defined() == (context.workers() > 1)) return placed;

  const tensor::Arena& arena = context.module.arena();
  at::Tensor flat = at::zeros_like(arena.gradients());
  if (velocities.defined()) take_row(context.comm, velocities, flat, kVelocity);
  for (std::size_t i = 0; i < arena.entries().size(); ++i) {
    const std::string name = fmt::format("optim.momentum.{}", arena.entries()[i].name);
    at::Tensor momentum = arena.view(flat, i);
    if (velocities.defined()) {
      if (context.optim.momentum > 0) placed.push_back({name, momentum});
    } else if (const at::Tensor saved = step::saved_or_none(state, name); saved.defined()) {
      if (saved.sizes() != momentum.sizes())
        throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", name));
      momentum.copy_(saved);
      std::erase_if(placed, [&](const step::NamedTensor& item) { return item.name == name; });
    }
  }
  if (!velocities.defined()) placed.push_back({kVelocity, flat.unsqueeze(0)});
  return placed;
}

void ResidualCarryover::apply(std::int64_t begin, std::int64_t end) {
  if (!any()) return;
  const double factor = step::corrects_momentum(context_.compression) ? 1 - context_.optim.momentum : 1;
  at::Tensor part = residual_.narrow(0, begin, end - begin);
  context_.module.arena().gradients().narrow(0, begin, end - begin).add_(part, factor);
  part.zero_();
  if ((left_ -= end - begin) == 0) residual_.reset();
}

std::vector<step::NamedTensor> ResidualCarryover::save() const {
  if (!any()) return {};
  return {{kResidual, residual_.unsqueeze(0)}};
}

void ResidualCarryover::load(std::span<const step::NamedTensor> state) {
  const at::Tensor rows = step::saved_or_none(state, kResidual), second = step::saved_or_none(state, kSecondResidual);
  if (!rows.defined() || context_.compression == "none") return;
  residual_ = at::zeros_like(context_.module.arena().gradients());
  left_ = residual_.numel();
  take_row(context_.comm, rows, residual_, kResidual);
  if (second.defined()) residual_.add_(second.sum(0).to(residual_.device()));
}

}  // namespace paceline::data_parallel
