#include "paceline/data_parallel/residual_carryover.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/arena_rows.h"
#include "paceline/step/boxes.h"
#include "paceline/step/momentum.h"

namespace paceline::data_parallel {

std::vector<step::NamedTensor> with_momentum_in_place(const step::Context& context, std::span<const step::NamedTensor> state) {
  constexpr const char* kMomentum = "optim.momentum";
  std::vector<step::NamedTensor> placed(state.begin(), state.end());
  const tensor::Arena& arena = context.model.arena();
  const bool velocities = saved_arena_rows(arena, state, kVelocity).has_value();
  if (!step::corrects_momentum(context.compression) || velocities == (context.workers() > 1)) return placed;

  const tensor::Shard::Held all[] = {{0, arena.length(), 0}};
  const at::Tensor flat = at::zeros_like(arena.gradients());
  std::vector<step::NamedTensor> momenta;
  step::show(momenta, arena, fmt::format("{}.", kMomentum), flat, all);
  if (velocities) {
    take_arena_row(context.comm(), arena, state, kVelocity, flat);
    if (context.optim.momentum > 0) std::ranges::move(momenta, std::back_inserter(placed));
    return placed;
  }
  for (const step::NamedTensor& momentum : momenta) {
    const auto saved = step::saved_shape(state, momentum.name);
    if (saved && momentum.held() && *saved != momentum.shape())
      throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", momentum.name));
    if (saved) step::fill({&momentum, 1}, state);
  }
  std::erase_if(placed, [&](const step::NamedTensor& item) { return item.name.starts_with(fmt::format("{}.", kMomentum)); });
  std::ranges::move(arena_rows(arena, kVelocity, flat, 0, 1), std::back_inserter(placed));
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
  return arena_rows(context_.model.arena(), kResidual, residual_, 0, 1);
}

void ResidualCarryover::load(std::span<const step::NamedTensor> state) {
  const tensor::Arena& arena = context_.model.arena();
  if (!saved_arena_rows(arena, state, kResidual) || context_.compression == "none") return;
  residual_ = at::zeros_like(arena.gradients());
  left_ = residual_.numel();
  take_arena_row(context_.comm(), arena, state, kResidual, residual_);
  if (!saved_arena_rows(arena, state, kSecondResidual)) return;
  const at::Tensor second = at::empty_like(residual_);
  sum_arena_rows(arena, state, kSecondResidual, second);
  residual_.add_(second);
}

}  // namespace paceline::data_parallel
