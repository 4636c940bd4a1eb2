#include "paceline/strategies/central_worker.h"

#include <ATen/ATen.h>

#include <thread>

#include <fmt/format.h>

#include "paceline/tensor/device.h"

namespace paceline::strategies {
namespace {

nn::GraphModule::Options options_of(const Context& context) {
  nn::GraphModule::Options options = context.module.options();
  options.allocate = tensor::allocate_pages;
  return options;
}

}  // namespace

CentralWorker::CentralWorker(const Context& context, const ps::PsConfig& config, std::unique_ptr<ps::Client> client, int index)
    : context_(context),
      module_(std::make_shared<nn::GraphModule>(context.module.graph(), options_of(context))),
      own_{.module = *module_,
           .optim = context.optim,
           .comm = context.comm,
           .bus = context.bus,
           .clock = context.clock,
           .compress = context.compress,
           .ps = config,
           .timing = context.timing,
           .seed = context.seed,
           .label_smoothing = context.label_smoothing,
           .micro_batches = context.micro_batches,
           .played = context.played,
           .threads = context.threads,
           .record_steps = context.record_steps,
           .repeatable = context.repeatable},
      client_(std::move(client)),
      rule_(ps::make_rule(config.rule, config, context.optim, context.played)),
      norms_(*module_),
      index_(index),
      lane_(fmt::format("worker {}", index)) {
  if (norms_.any()) running_ = norms_.initial(), statistics_ = norms_.initial();
}

void CentralWorker::begin() {
  tensor::configure_libtorch(module_->device(), module_->options().precision, context_.threads, context_.repeatable);
  pass_.emplace(own_);
  if (rule_->needs().replica) updater_.emplace(module_->arena(), own_.optim);
}

at::Tensor CentralWorker::minibatch(const Batch& batch, const Point& point) {
  const auto rate = static_cast<float>(point.rate);
  const at::Tensor& parameters = module_->arena().parameters();
  const at::Tensor& gradients = module_->arena().gradients();
  const bool replica = rule_->needs().replica, several = rule_->period() > 1;
  const Nanoseconds began = context_.clock.now();
  const ps::Iteration before = durations_;
  durations_ = {};
  if (local_ == 0) {
    const PhaseSpan span(own_, "pull", lane_.c_str());
    client_->pull(replica && iteration_ > 0 ? nullptr : parameters.data_ptr<float>(), rate);
    durations_.pull = context_.clock.now() - began;
    module_->refresh();
  }
  const bool last = local_ + 1 >= rule_->period();
  ps::Advice advice;
  double loss = 0;
  Nanoseconds scored_at{0}, reported{0};
  pass_->begin_step(point.step);
  if (norms_.any()) norms_.before_pass();
  const at::Tensor sums = pass_->run(batch, batch.weight(1), nullptr, [&](const at::Tensor& scored) {
    if (norms_.any()) norms_.after_pass(statistics_, running_, std::min(context_.micro_batches, batch.inputs.size(0)));
    loss = scored[0].item<double>() / static_cast<double>(batch.targets.numel());
    scored_at = context_.clock.now();
    if (last)
      advice = client_->report({.loss = loss, .t_comm_s = seconds(durations_.pull), .t_comp_s = seconds(before.backward)},
                               norms_.any() ? statistics_.data_ptr<float>() : nullptr);
    reported = context_.clock.now();
  });
  std::this_thread::sleep_for(
      ps::straggle(context_.timing, context_.played, context_.seed, index_, iteration_, context_.clock.now() - began));
  durations_.forward = scored_at - began - durations_.pull, durations_.report = reported - scored_at;
  durations_.backward = context_.clock.now() - reported;
  ++iteration_;

  if (replica) {
    updater_->begin_step({.rate = rate, .step = iteration_});
    updater_->update_all();
  } else if (several) {
    if (local_ == 0) sum_ = gradients.clone();
    else sum_.add_(gradients);
    if (!last) at::Tensor(parameters).add_(gradients, -rate);
  }
  local_ = last ? 0 : local_ + 1;
  if (last) {
    const PhaseSpan span(own_, "push", lane_.c_str());
    tensor::synchronize(module_->device());
    const at::Tensor& sent = replica ? parameters : several ? sum_ : gradients;
    const Nanoseconds pushing = context_.clock.now();
    client_->push(sent.data_ptr<float>(), {.rate = rate, .scale = static_cast<float>(advice.scale), .loss = loss});
    durations_.push = context_.clock.now() - pushing;
  }
  if (replica || several) module_->refresh();
  return sums.cpu();
}

}  // namespace paceline::strategies
