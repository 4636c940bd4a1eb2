#include "paceline/data_parallel/residual_carryover.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/step/momentum.h"

namespace paceline::data_parallel {

std::vector<step::NamedTensor> with_momentum_in_place(const step::Context& context, std::span<const step::NamedTensor> state) {
  std::vector<step::NamedTensor> placed(state.begin(), state.end());
  const bool velocities = step::saved_shape(state, kVelocity).has_value();
  if (!step::corrects_momentum(context.compression) || velocities == (context.workers() > 1)) return placed;

  const tensor::Arena& arena = context.model.arena();
  at::Tensor flat = at::zeros_like(arena.gradients());
  if (velocities) take_row(context.comm(), state, kVelocity, flat);
  for (std::size_t i = 0; i < arena.entries().size(); ++i) {
    const std::string name = fmt::format("optim.momentum.{}", arena.entries()[i].name);
    at::Tensor momentum = arena.view(flat, i);
    if (velocities) {
      if (context.optim.momentum > 0) placed.push_back({name, momentum});
    } else if (const at::Tensor saved = step::saved_or_none(state, name); saved.defined()) {
      if (saved.sizes() != momentum.sizes())
        throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", name));
      momentum.copy_(saved);
      std::erase_if(placed, [&](const step::NamedTensor& item) { return item.name == name; });
    }
  }
  if (!velocities) placed.push_back({kVelocity, flat.unsqueeze(0)});
  return placed;
}

void ResidualCarryover::apply(std::int64_t begin, std::int64_t end) {
  if (!any()) return;
  const double factor = step::corrects_momentum(context_.compression) ? 1 - context_.optim.momentum : 1;
  at::Tensor part = residual_.narrow(0, begin, end - begin);
  context_.model.arena().gradients().narrow(0, begin, end - begin).add_(part, factor);
  part.zero_();
  if ((left_ -= end - begin) == 0) residual_.reset();
}

std::vector<step::NamedTensor> ResidualCarryover::save() const {
  if (!any()) return {};
  return {{kResidual, residual_.unsqueeze(0)}};
}

void ResidualCarryover::load(std::span<const step::NamedTensor> state) {
  if (!step::saved_shape(state, kResidual) || context_.compression == "none") return;
  residual_ = at::zeros_like(context_.model.arena().gradients());
  left_ = residual_.numel();
  take_row(context_.comm(), state, kResidual, residual_);
  if (step::saved_shape(state, kSecondResidual)) residual_.add_(sum_of_rows(state, kSecondResidual, residual_));
}

}  // namespace paceline::data_parallel
