#include "paceline/pipeline/tied_link.h"

#include <ATen/ATen.h>

namespace paceline::pipeline {

TiedLink::TiedLink(const step::Context& context) : clock_(context.clock), weight_(context.model.network().tied()) {
  if (!weight_) return;
  comm::Communicator& stages = context.mesh.pipeline();
  ends_ = stages.split(weight_->values.defined() ? 0 : 1, stages.rank());
  if (!weight_->values.defined()) ends_.reset(), weight_.reset();
}

void TiedLink::pass_values() {
  if (trains()) send(weight_->values);
  else receive(weight_->values);
}

void TiedLink::add_gradients(const nn::GradientReady& ready) {
  if (!trains()) return send(weight_->gradient);
  const at::Tensor others = at::empty_like(weight_->gradient);
  receive(others);
  weight_->gradient.add_(others);
  if (ready) ready(*weight_->entry, *weight_->entry + 1);
}

nn::GradientReady TiedLink::all_but_tied(const nn::GradientReady& ready) const {
  if (!ready || !trains()) return ready;
  return [&ready, tied = *weight_->entry](std::size_t first, std::size_t last) {
    if (tied < first || tied >= last) return ready(first, last);
    if (first < tied) ready(first, tied);
    if (tied + 1 < last) ready(tied + 1, last);
  };
}

// The first stage takes the gradient when it has computed its own, which may be long after the last stage has.
void TiedLink::send(const at::Tensor& values) {
  const Nanoseconds began = clock_.now();
  ends_->run(comm::send(values.view({-1}), 1 - ends_->rank(), 0, {.deadline = comm::kUntilTheEnd}));
  bytes_sent_ += values.numel() * static_cast<std::int64_t>(values.element_size());
  waited_s_ += seconds(clock_.now() - began);
}

void TiedLink::receive(const at::Tensor& values) {
  const Nanoseconds began = clock_.now();
  ends_->run(comm::receive(values.view({-1}), 1 - ends_->rank()));
  waited_s_ += seconds(clock_.now() - began);
}

}  // namespace paceline::pipeline
