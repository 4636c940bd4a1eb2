#include "paceline/central/virtual_executor.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/ps/kernels.h"

namespace paceline::central {

VirtualExecutor::VirtualExecutor(const step::Context& context, const ps::PsConfig& config)
    : context_(context),
      config_(config),
      pass_(context),
      recorded_(context.module.device(), context.record_steps),
      norms_(context.module),
      timing_(ps::make_timing(context.timing, context.played, context.seed)),
      players_(static_cast<std::size_t>(context.played)) {
  const auto rule = ps::make_rule(config.rule, config, context.optim, context.played);
  replicas_ = rule->needs().replica;
  steps_ = config.pushes_steps();
  local_ = replicas_ || steps_ || rule->period() > 1;
  apart_ = local_ || rule->needs().sends_own;
  ps::Server::Setup setup = server_setup(context);
  if (!apart_) setup.parameters = parameters().data_ptr<float>();
  server_.emplace(config, context.optim, setup);
  if (apart_) server_parameters().copy_(parameters());
  if (norms_.any()) server_statistics().copy_(norms_.initial());
  if (replicas_ || steps_) updater_.emplace(context.module.arena(), context.optim);
  for (Player& player : players_) begin(player);
  for (std::size_t i = 0; i < players_.size(); ++i) ready_.push_back(i);
}

step::StepResult VirtualExecutor::step(const step::Batch& batch, const step::Point& point) {
  server_->use_stream(tensor::current_stream(context_.module.device()));
  catch_up();
  const std::size_t worker = ready_.front();
  ready_.pop_front();
  if (!compute(static_cast<int>(worker), batch, point)) ready_.push_back(worker);
  while (ready_.empty() && !loss_pending()) next_event();  // while a GPU computes, the host goes on with what lies before
  return {sums_, batch.targets.numel()};
}

void VirtualExecutor::catch_up() {
  while (ready_.empty()) next_event();
}

void VirtualExecutor::show(const std::string& view) {
  if (shown_) return show_statistics(view);
  catch_up();
  shown_ = true;
  if (apart_) own_parameters_ = parameters().clone(), at::Tensor(parameters()).copy_(server_parameters());
  context_.module.refresh();
  show_statistics(view);
}

void VirtualExecutor::resume_training() {
  shown_ = false;
  if (apart_) at::Tensor(parameters()).copy_(own_parameters_), own_parameters_.reset(), context_.module.refresh();
}

observe::Served VirtualExecutor::served() const {
  observe::Served served = served_by(*server_);
  served.virtual_s = seconds(clock_.now());
  served.predictor_ms = 1e3 * seconds(predictors());
  served.iteration_ms = iterations_ > 0 ? 1e3 * seconds(busy_) / static_cast<double>(iterations_) : observe::kUnknown;
  return served;
}

void VirtualExecutor::begin(Player& player) {
  player.gradient = at::zeros_like(gradients());
  if (norms_.any()) player.running = norms_.initial(), player.statistics = norms_.initial();
  if (local_) player.replica = server_parameters().clone();
  if (updater_ && !updater_->buffers().empty())
    player.momentum = at::zeros({std::ssize(updater_->buffers()), parameters().numel()}, parameters().options());
}

void VirtualExecutor::show_statistics(const std::string& view) {
  if (!norms_.any()) return;
  norms_.show(view == kWorkerView ? players_.front().running : server_statistics());
}

/// On a GPU: whether the next event needs a loss that is still being computed.
bool VirtualExecutor::loss_pending() const { return !on_cpu() && newest_ >= 0 && next_player() == newest_; }

std::int64_t VirtualExecutor::next_player() const {
  std::int64_t best = -1;
  for (std::size_t i = 0; i < players_.size(); ++i) {
    const Player& p = players_[i];
    if (p.phase == Phase::waiting) continue;
    if (best < 0 || std::pair(p.due, p.planned) <
                        std::pair(players_[static_cast<std::size_t>(best)].due, players_[static_cast<std::size_t>(best)].planned))
      best = static_cast<std::int64_t>(i);
  }
  return best;
}

void VirtualExecutor::plan(Player& player, Phase phase, Nanoseconds after) {
  player.phase = phase, player.due = clock_.now() + after, player.planned = planned_++;
}

void VirtualExecutor::next_event() {
  const std::int64_t index = next_player();
  ensure(index >= 0, "some worker of a parameter server can always go on");
  const int worker = static_cast<int>(index);
  clock_.advance_to(player(worker).due);
  if (player(worker).phase == Phase::computing) return report(worker);  // the forward pass is done
  push(worker);
  grant_after(worker);
}

void VirtualExecutor::report(int worker) {
  Player& player = players_[static_cast<std::size_t>(worker)];
  const at::Tensor& sums = player.sums.wait();
  player.loss = sums[0].item<double>() / static_cast<double>(player.targets);
  player.finite = sums[2].item<double>() != 0;
  const ps::Advice advice =
      server_->report(worker, {.loss = player.loss, .t_comm_s = seconds(player.times.pull), .t_comp_s = player.t_comp_s},
                      norms_.any() ? player.statistics.data_ptr<float>() : nullptr);
  player.scale = static_cast<float>(advice.scale);
  plan(player, Phase::pushing, answer(player.times) + player.times.backward + player.times.push);
}

void VirtualExecutor::push(int worker) {
  Player& player = players_[static_cast<std::size_t>(worker)];
  auto* sent = sent_by(player).data_ptr<float>();
  const bool finite = player.finite && std::isfinite(player.loss) && (!on_cpu() || ps::all_finite(sent, server_->length()));
  if (finite) server_->push(worker, sent, {.rate = player.rate, .scale = player.scale, .loss = player.loss});
  else server_->refuse(worker);
  if (!apart_) context_.module.refresh();
  player.phase = Phase::waiting, player.local = 0;
}

void VirtualExecutor::grant_after(int worker) {
  for (std::size_t i = 0; i < players_.size(); ++i)
    if (players_[i].phase != Phase::waiting && server_->in_vain(static_cast<int>(i))) {  // it leaves off, and its push will not come
      server_->push(static_cast<int>(i), players_[i].gradient.data_ptr<float>(), {.rate = players_[i].rate, .loss = players_[i].loss});
      players_[i].phase = Phase::waiting, players_[i].local = 0;
    }
  // Whoever waits is granted in the order of numbers, beginning after the one that pushed last.
  for (std::size_t k = 1; k <= players_.size(); ++k) {
    const std::size_t i = (static_cast<std::size_t>(worker) + k) % players_.size();
    if (players_[i].phase == Phase::waiting && std::ranges::find(ready_, i) == ready_.end() && server_->may_pull(static_cast<int>(i)))
      ready_.push_back(i);
  }
}

bool VirtualExecutor::compute(int worker, const step::Batch& batch, const step::Point& point) {
  Player& player = players_[static_cast<std::size_t>(worker)];
  const bool visits = player.local == 0;
  player.rate = static_cast<float>(point.rate);
  if (visits) {
    auto* into = (local_ ? player.replica : parameters()).data_ptr<float>();
    // Elastic replicas take nothing from the server but what their last visit left in them.
    if (replicas_ && player.iteration > 0) server_->grant(worker);
    else server_->pull(worker, into, player.rate);
  }
  if (local_) at::Tensor(parameters()).copy_(player.replica);
  if (apart_) context_.module.refresh();
  pass_.begin_step(point.step);
  if (norms_.any()) norms_.before_pass();
  recorded_.run(batch, [&] { sums_ = pass_.run(batch, batch.weight(1)); });
  if (norms_.any()) norms_.after_pass(player.statistics, player.running, std::min(context_.micro_batches, batch.inputs.size(0)));
  player.targets = batch.targets.numel();
  newest_ = worker;
  const bool last = ++player.local >= server_->rule().period();
  go_on(player, visits, last);
  // Whether what it will push is finite comes back with the loss, so that nobody waits for a GPU to tell. In host memory it is looked at.
  const at::Tensor finite = on_cpu() ? at::ones({1}, sums_.options()) : finite_on_device(sent_by(player)).to(sums_.options()).view({1});
  player.sums.start(at::cat({sums_, finite}));

  player.t_comp_s = seconds(player.times.backward);
  player.times = timing_->draw(worker, player.iteration++, bytes());
  const ps::Iteration& t = player.times;
  busy_ += t.forward + t.backward + (last ? t.pull + answer(t) + t.push : Nanoseconds(0)), ++iterations_;
  if (last) {
    plan(player, Phase::computing, player.ahead + t.pull + t.forward);
    player.ahead = Nanoseconds(0);
  } else {
    player.ahead += t.forward + t.backward;
  }
  return last;
}

/// The worker's gradient goes into what it will push, and, where it goes on by itself, into its replica.
void VirtualExecutor::go_on(Player& player, bool first, bool last) {
  if (steps_ && first) player.gradient.copy_(player.replica);  // what it pulled; the way from there is pushed
  if (!updater_ && first) player.gradient.copy_(gradients());
  if (!updater_ && !first) player.gradient.add_(gradients());
  if (!local_) return;
  if (updater_ && !all_finite(gradients())) {
    player.gradient.copy_(gradients());  // to be refused; the worker's own momentum and replica must not have it
  } else if (updater_) {
    for (std::size_t i = 0; i < updater_->buffers().size(); ++i)
      at::Tensor(updater_->buffers()[i]).copy_(player.momentum[static_cast<std::int64_t>(i)]);
    updater_->begin_step({.rate = player.rate, .step = player.iteration + 1});
    updater_->update_all();
    for (std::size_t i = 0; i < updater_->buffers().size(); ++i)
      player.momentum[static_cast<std::int64_t>(i)].copy_(updater_->buffers()[i]);
    player.replica.copy_(parameters());
    if (steps_ && last) player.gradient.sub_(player.replica);
  } else {
    player.replica.add_(gradients(), -player.rate);
  }
}

std::unique_ptr<Executor> make_virtual_executor(const step::Context& context, const ps::PsConfig& ps) {
  if (context.timing.distribution == "trace") return make_replay_executor(context, ps);
  return std::make_unique<VirtualExecutor>(context, ps);
}

}  // namespace paceline::central
