#include "paceline/step/loss_scale.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace paceline::step {
namespace {

constexpr const char* kName = "loss_scale";  // [3]: scale, good steps, skipped steps

}  // namespace

LossScale::LossScale(const Context& context) : mesh_(context.mesh), on_(needed(context.model.arena())), scale_(on_ ? kFirst : 1) {}

bool LossScale::needed(const tensor::Arena& arena) { return arena.dtype(tensor::Role::gradient) == at::kHalf; }

bool LossScale::accepts(bool finite) {
  if (!on_) return true;
  std::vector<std::int32_t> any = {finite ? 0 : 1};
  if (mesh_.everyone().size() > 1) mesh_.everyone().run(comm::allreduce(any, {.op = comm::ReduceOp::max}));
  if (any[0] > 0) {
    scale_ = std::max(scale_ / 2, kLeast);
    good_ = 0, ++skipped_;
    return false;
  }
  if (++good_ % kGoodSteps == 0) scale_ *= 2;
  return true;
}

std::vector<NamedTensor> LossScale::save() const {
  if (!on_) return {};
  return {{kName, at::tensor({scale_, static_cast<double>(good_), static_cast<double>(skipped_)}, at::kDouble)}};
}

void LossScale::load(std::span<const NamedTensor> state) {
  const at::Tensor saved = on_ ? saved_or_none(state, kName) : at::Tensor();
  if (!saved.defined()) return;
  const at::Tensor values = saved.to(at::kDouble).contiguous();
  scale_ = values.data_ptr<double>()[0];
  good_ = static_cast<std::int64_t>(values.data_ptr<double>()[1]), skipped_ = static_cast<std::int64_t>(values.data_ptr<double>()[2]);
}

}  // namespace paceline::step
