// A small model whose last layer is spread over the data axis: each worker has the weights of some classes alone, computes them for the
// samples of all workers, and sends the results back.
#pragma once

#include <ATen/ATen.h>

#include "paceline/comm/communicator.h"
#include "paceline/nn/model.h"

namespace paceline::sharded {

class SpreadModel final : public nn::Model {
 public:
  static constexpr std::int64_t kInputs = 16, kHidden = 23, kClasses = 4;

  SpreadModel(comm::Communicator& comm, const tensor::Allocate& allocate)
      : comm_(comm.split(0, comm.rank())), arena_(specs(comm), options(allocate, true)), statistics_({}, options(allocate, false)) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < arena_.entries().size(); ++i) {
      const tensor::Entry& entry = arena_.entries()[i];
      const std::vector<std::int64_t> shape = entry.whole();
      const std::int64_t count = at::empty(shape).numel();
      const at::Tensor whole =
          ((at::arange(count, at::kDouble) + 1) * (0.7 + 0.4 * static_cast<double>(i))).sin().reshape(shape).to(at::kFloat) * 0.3;
      arena_.parameter(i).copy_(entry.slice ? tensor::cut(whole, *entry.slice) : whole);
    }
    arena_.set_unit(1, 2, 4);
  }

  std::shared_ptr<Model> another() const override { return nullptr; }
  const std::vector<nn::Unit>& units() const override { return units_; }
  tensor::Arena& arena() override { return arena_; }
  tensor::Arena& statistics() override { return statistics_; }
  double statistics_momentum(std::size_t) const override { return 0; }
  const c10::Device& device() const override { return device_; }
  tensor::Precision precision() const override { return tensor::Precision::fp32; }
  bool uses_chance() const override { return false; }
  bool takes_masks() const override { return false; }
  bool recordable() const override { return false; }
  std::vector<nn::Part> parts() const override { return {}; }
  void walk(const at::Tensor&, const nn::Pass&, const nn::Visit&) override {}
  void refresh() override {}
  void take_back() override {}
  void weight_gradients(nn::Units, const nn::Pass&, nn::Trace&, const nn::GradientReady&) override {}

  using Model::back;
  using Model::run;

  nn::Tensors run(nn::Units range, nn::Tensors inputs, const nn::Pass& pass, nn::Trace* trace) override {
    const at::NoGradGuard no_grad;
    nn::Trace unused;
    nn::Trace& kept = trace ? *trace : unused;
    kept.begin(2, 2, range);
    at::Tensor x = inputs[0];
    for (std::size_t unit = range.first; unit < range.last; ++unit) {
      if (pass.hooks && pass.hooks->before_forward) pass.hooks->before_forward(unit);
      const at::Tensor weight = arena_.parameter(2 * unit), bias = arena_.parameter(2 * unit + 1);
      if (unit == 0) {
        const at::Tensor hidden = at::addmm(bias, x, weight.t()).tanh();
        kept.saved[0] = {x, hidden};
        x = hidden;
      } else {
        const at::Tensor everybodys = gather(x);
        kept.saved[1] = {everybodys};
        const std::int64_t ranks = comm_->size(), own = weight.size(0), samples = x.size(0);
        const at::Tensor logits = exchange(at::mm(everybodys, weight.t()));  // of the own samples: [ranks, samples, own]
        x = logits.view({ranks, samples, own}).permute({1, 0, 2}).reshape({samples, kClasses}) + bias;
      }
      if (pass.hooks && pass.hooks->after_forward) pass.hooks->after_forward(unit);
    }
    return {x};
  }

  nn::Tensors back(nn::Units range, nn::Tensors gradients, const nn::Pass& pass, nn::Trace& trace, const nn::Wanted&,
                   const nn::GradientReady& ready) override {
    const at::NoGradGuard no_grad;
    trace.use_up(range);
    at::Tensor gradient = gradients[0];
    for (std::size_t unit = range.last; unit-- > range.first;) {
      if (pass.hooks && pass.hooks->before_backward) pass.hooks->before_backward(unit);
      const at::Tensor weight = arena_.parameter(2 * unit), place = arena_.gradient(2 * unit), bias_place = arena_.gradient(2 * unit + 1);
      if (unit == 0) {
        gradient = gradient * (1 - trace.saved[0][1].square());
        nn::deliver(place, at::mm(gradient.t(), trace.saved[0][0]), pass);
        nn::deliver(bias_place, gradient.sum(0), pass);
      } else {
        const std::int64_t ranks = comm_->size(), own = weight.size(0), samples = gradient.size(0);
        nn::deliver(bias_place, gradient.sum(0), pass);
        const at::Tensor owners = gradient.view({samples, ranks, own}).permute({1, 0, 2}).reshape({ranks * samples, own});
        const at::Tensor everybodys = exchange(owners);  // of the own classes
        nn::deliver(place, at::mm(everybodys.t(), trace.saved[1][0]), pass);
        const at::Tensor partial = at::mm(everybodys, weight);
        comm_->run(comm::reduce_scatter(partial));
        gradient = partial.narrow(0, comm_->rank() * samples, samples);
      }
      if (ready) ready(units_[unit].first_entry, units_[unit].last_entry);
      if (pass.hooks && pass.hooks->after_backward) pass.hooks->after_backward(unit);
    }
    return {gradient};
  }

 private:
  static std::vector<tensor::Spec> specs(const comm::Communicator& comm) {
    std::vector<tensor::Spec> result = {{"first.weight", {kHidden, kInputs}},
                                        {"first.bias", {kHidden}, false},
                                        {"spread.weight", {kClasses, kHidden}},
                                        {"spread.bias", {kClasses}, false}};
    if (comm.size() == 1) return result;
    const std::int64_t own = kClasses / comm.size();
    result[2].shape = {own, kHidden};
    result[2].slice = {.dim = 0, .all = kClasses, .runs = {{own * comm.rank(), own}}, .across = tensor::Across::data};
    return result;
  }

  static tensor::Arena::Options options(const tensor::Allocate& allocate, bool gradients) {
    tensor::Arena::Options options;
    options.gradients = gradients;
    if (gradients) options.allocate = allocate;
    return options;
  }

  at::Tensor gather(const at::Tensor& own) {
    at::Tensor all = at::empty({comm_->size() * own.size(0), own.size(1)}, own.options());
    all.narrow(0, comm_->rank() * own.size(0), own.size(0)).copy_(own);
    comm_->run(comm::all_gather(all));
    return all;
  }

  /// Part i goes to rank i.
  at::Tensor exchange(const at::Tensor& parts) {
    const at::Tensor given = parts.contiguous(), got = at::empty_like(given);
    comm_->run(comm::all_to_all(given, got));
    return got;
  }

  std::unique_ptr<comm::Communicator> comm_;
  tensor::Arena arena_, statistics_;
  std::vector<nn::Unit> units_ = {{"first", 0, 2}, {"spread", 2, 4}};
  c10::Device device_{c10::kCPU};
};

}  // namespace paceline::sharded
