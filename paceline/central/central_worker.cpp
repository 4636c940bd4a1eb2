#include "paceline/central/central_worker.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/tensor/device.h"

namespace paceline::central {
namespace {

// Names in a checkpoint.
constexpr const char *kResidual = "residual", *kVelocity = "velocity", *kPushes = "pushes";
constexpr int kAskingShare = 100;                           // asking takes at most 1/100 of the time
constexpr Nanoseconds kNap = std::chrono::milliseconds(1);  // how often a straggler that may be cancelled checks

}  // namespace

CentralWorker::CentralWorker(const step::Context& context, const Settings& settings, std::unique_ptr<ps::Client> client, int index)
    : settings_(settings),
      context_(context),
      module_(context.model.another()),
      client_(std::move(client)),
      duties_(Duties(settings.ps, *ps::make_rule({settings.ps, context.optim, settings.workers})).of_worker(settings.ps, index)),
      norms_(*module_),
      updater_(make_updater(duties_, module_->arena(), context.optim)),
      local_(duties_, &norms_, module_->arena(), updater_.get(), /*shares_module=*/false),
      index_(index),
      lane_(fmt::format("worker {}", index)),
      pass_(context, *module_),
      recorded_(module_->device(), context.record_steps),
      cancels_(ps::make_consistency(settings.ps.consistency, settings.ps, settings.workers)->cancels()) {}

at::Tensor CentralWorker::minibatch(const step::Batch& batch, const step::Point& point) {
  const auto rate = static_cast<float>(point.rate);
  const bool last = local_.ends_period();
  const Nanoseconds began = context_.clock.now(), computed_before = durations_.backward;
  durations_ = {};
  if (local_.visits()) pull(rate);
  bool cancelled = false;
  try {
    forward_and_backward(batch, point, last, computed_before);
    straggle(began);
  } catch (const Cancelled&) {
    cancelled = true;
  }
  durations_.backward = context_.clock.now() - began - durations_.pull - durations_.forward - durations_.report;
  if (cancelled) {
    local_.leave_off();
    return sums_.cpu();
  }
  if (local_.take_gradient(rate)) push(rate);
  if (duties_.replica || duties_.period > 1) module_->refresh();
  return sums_.cpu();
}

void CentralWorker::pull(float rate) {
  const step::PhaseSpan span(context_, "pull", lane_.c_str());
  const Nanoseconds began = context_.clock.now();
  const at::Tensor& parameters = module_->arena().parameters();
  client_->pull(local_.needs_pull() ? parameters.data_ptr<float>() : nullptr, rate);
  durations_.pull = context_.clock.now() - began;
  module_->refresh();
  local_.pulled();
}

void CentralWorker::forward_and_backward(const step::Batch& batch, const step::Point& point, bool last, Nanoseconds computed_before) {
  const Nanoseconds began = context_.clock.now();
  advice_ = {};
  pass_.begin_step(point.step);
  if (norms_.any()) norms_.before_pass();
  const auto told = [&](const at::Tensor& scored) {
    sums_ = scored;
    local_.after_pass(std::min(context_.micro_batches, batch.inputs.size(0)));
    loss_ = scored[0].item<double>() / static_cast<double>(batch.targets.numel());
    const Nanoseconds scored_at = context_.clock.now();
    durations_.forward = scored_at - began;
    if (!last) return;
    advice_ = client_->report({.loss = loss_, .t_comm_s = seconds(durations_.pull), .t_comp_s = seconds(computed_before)},
                              norms_.any() ? local_.statistics().data_ptr<float>() : nullptr);
    durations_.report = context_.clock.now() - scored_at;
    if (advice_.cancelled) throw Cancelled{};
  };
  sums_ = pass(batch, told);
}

at::Tensor CentralWorker::pass(const step::Batch& batch, const std::function<void(const at::Tensor&)>& told) {
  if (module_->device().is_cpu())
    return pass_.run(batch, batch.weight(1), cancels_ ? [this](auto&&...) { ask(); } : nn::GradientReady{}, told);
  // A recorded pass cannot be interrupted, so the report, which carries the loss, follows the whole pass.
  place_.copy_from(batch);
  const at::Tensor sums = recorded_.result(place_, [&] { return pass_.run(place_, place_.weight(1)); });
  told(sums);
  return sums;
}

void CentralWorker::straggle(Nanoseconds began) {
  const Nanoseconds now = context_.clock.now();
  const Nanoseconds until = now + ps::straggle(settings_.timing, settings_.workers, context_.seed, index_, local_.iteration(), now - began);
  for (Nanoseconds left = until - now; left > Nanoseconds(0); left = until - context_.clock.now()) {
    if (cancels_) ask();
    std::this_thread::sleep_for(cancels_ ? std::min(left, kNap) : left);
  }
}

void CentralWorker::push(float rate) {
  const step::PhaseSpan span(context_, "push", lane_.c_str());
  tensor::synchronize(module_->device());
  const bool finite = local_.finite().item<bool>();
  const Nanoseconds began = context_.clock.now();
  client_->push(local_.sent().data_ptr<float>(),
                {.rate = rate, .scale = static_cast<float>(advice_.scale), .loss = loss_, .finite = finite});
  durations_.push = context_.clock.now() - began;
  local_.pushed();
}

// Residuals have the length of the arena, whichever servers they belong to.
std::vector<step::NamedTensor> CentralWorker::save() const {
  std::vector<step::NamedTensor> state = local_.save();
  const std::vector<ps::Unsent> unsent = client_->unsent();
  if (unsent.empty()) return state;
  const auto whole = [&](const char* name, const auto& part) {
    at::Tensor values = at::zeros({module_->arena().length()});
    for (const ps::Unsent& server : unsent) std::ranges::copy(part(server), values.data_ptr<float>() + server.begin);
    state.push_back({.name = name, .tensor = values, .copied = true});
  };
  whole(kResidual, [](const ps::Unsent& server) { return server.residual; });
  if (!unsent[0].velocity.empty()) whole(kVelocity, [](const ps::Unsent& server) { return server.velocity; });
  state.push_back({kPushes, at::tensor({*unsent[0].pushes}, at::kLong)});
  return state;
}

// A checkpoint of workers without compression has no residuals; they start at zero.
void CentralWorker::load(std::span<const step::NamedTensor> state) {
  local_.load(state);
  const auto restore = [&](const char* name, const ps::Unsent& server, std::span<float> into) {
    const at::Tensor saved = step::saved_or_none(state, name);
    if (!saved.defined() || into.empty()) return;
    if (saved.numel() != module_->arena().length())
      throw ConfigError(fmt::format("the checkpoint's '{}' of worker {} is that of another model", name, index_));
    const at::Tensor values = saved.contiguous();
    std::copy_n(values.data_ptr<float>() + server.begin, into.size(), into.data());
  };
  for (const ps::Unsent& server : client_->unsent()) {
    restore(kResidual, server, server.residual), restore(kVelocity, server, server.velocity);
    if (const at::Tensor saved = step::saved_or_none(state, kPushes); saved.defined()) *server.pushes = saved.item<std::int64_t>();
  }
}

void CentralWorker::ask() {
  const Nanoseconds asked = context_.clock.now();
  if (asked < ask_again_) return;
  if (client_->cancelled()) throw Cancelled{};
  const Nanoseconds answered = context_.clock.now();
  ask_again_ = answered + kAskingShare * (answered - asked);
}

}  // namespace paceline::central
