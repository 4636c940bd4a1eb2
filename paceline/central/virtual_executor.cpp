#include "paceline/central/virtual_executor.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/central/server_plan.h"

namespace paceline::central {
namespace {

/// If workers compute directly on the server's parameters, these are `parameters`.
ps::Server::Setup setup_of(const step::Context& context, const Settings& settings, float* parameters) {
  ps::Server::Setup setup = ServerPlan(context, settings, 1).whole();
  setup.parameters = parameters;
  return setup;
}

}  // namespace

VirtualExecutor::VirtualExecutor(const step::Context& given, const Settings& given_settings)
    : Central(given, given_settings),
      duties_(ps(), *ps::make_rule({ps(), context().optim, workers()})),
      pass_(context()),
      recorded_(module().device(), context().record_steps),
      norms_(module()),
      timing_(ps::make_timing(settings().timing, workers(), context().seed)),
      apart_(duties_.departs() || duties_.sent_own || ps().averaging > 0),
      server_(ps(), context().optim, setup_of(context(), settings(), apart_ ? nullptr : parameters().data_ptr<float>())),
      updater_(make_updater(duties_, module().arena(), context().optim)),
      loop_(static_cast<std::size_t>(workers())) {
  if (apart_) tensors().parameters().copy_(parameters());
  if (norms_.any()) tensors().statistics().copy_(norms_.initial());
  duties_.cancellable = ps::make_consistency(ps().consistency, ps(), workers())->cancels();
  for (int i = 0; i < workers(); ++i) {
    players_.emplace_back(LocalWorker(duties_.of_worker(ps(), i), &norms_, module().arena(), updater_.get(), /*shares_module=*/true));
    ready_.push_back(static_cast<std::size_t>(i));
  }
}

step::StepResult VirtualExecutor::step(const step::Batch& batch, const step::Point& point) {
  server_.use_stream(tensor::current_stream(module().device()));
  catch_up();
  const std::size_t worker = ready_.front();
  ready_.pop_front();
  if (!compute(static_cast<int>(worker), batch, point)) ready_.push_back(worker);
  while (ready_.empty() && !loss_pending()) next_event();  // while a GPU computes, the host processes earlier events
  return {sums_, batch.targets.numel()};
}

void VirtualExecutor::catch_up() {
  while (ready_.empty()) next_event();
}

void VirtualExecutor::show(const std::string& view) {
  if (shown_) return show_statistics(view);
  catch_up();
  shown_ = true;
  if (apart_) at::Tensor(parameters()).copy_(tensors().shown());  // every minibatch begins with its worker's own
  module().refresh();
  show_statistics(view);
}

void VirtualExecutor::resume_training() { shown_ = false; }

observe::Served VirtualExecutor::served() const {
  observe::Served served = served_by(server_);
  served.virtual_s = seconds(loop_.now());
  served.predictor_ms = 1e3 * seconds(predictors());
  served.iteration_ms = iterations_ > 0 ? 1e3 * seconds(busy_) / static_cast<double>(iterations_) : observe::kUnknown;
  return served;
}

void VirtualExecutor::show_statistics(const std::string& view) {
  if (!norms_.any()) return;
  norms_.show(view == kWorkerView ? players_.front().local.running() : tensors().statistics());
}

/// On a GPU: whether the next event depends on a loss that is still being computed.
bool VirtualExecutor::loss_pending() const { return !on_cpu() && newest_ >= 0 && loop_.next() == static_cast<std::size_t>(newest_); }

void VirtualExecutor::plan(int worker, Phase phase, Nanoseconds after) {
  player(worker).phase = phase;
  loop_.plan(static_cast<std::size_t>(worker), after);
}

void VirtualExecutor::wait(int worker) {
  player(worker).phase = Phase::waiting, player(worker).local.pushed();
  loop_.cancel(static_cast<std::size_t>(worker));
}

void VirtualExecutor::next_event() {
  const int worker = static_cast<int>(loop_.advance());
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
      server_.report(worker, {.loss = player.loss, .t_comm_s = seconds(player.times.pull), .t_comp_s = player.t_comp_s},
                     norms_.any() ? player.local.statistics().data_ptr<float>() : nullptr);
  player.scale = static_cast<float>(advice.scale);
  plan(worker, Phase::pushing, answer(player.times) + player.times.backward + player.times.push);
}

void VirtualExecutor::push(int worker) {
  Player& player = players_[static_cast<std::size_t>(worker)];
  const at::Tensor& tensor = player.local.sent();
  auto* sent = tensor.data_ptr<float>();
  const ps::Push push{.rate = player.rate, .scale = player.scale, .loss = player.loss, .finite = player.finite};
  if (ps::is_usable({sent, static_cast<std::size_t>(tensor.numel())}, push, server_.place())) server_.push(worker, sent, push);
  else server_.refuse(worker);
  if (!apart_) module().refresh();
  wait(worker);
}

void VirtualExecutor::grant_after(int worker) {
  for (std::size_t i = 0; i < players_.size(); ++i)
    if (players_[i].phase != Phase::waiting && server_.cancelled(static_cast<int>(i))) {  // it stops, and its push will not arrive
      server_.push(static_cast<int>(i), players_[i].local.memory().pushed.data_ptr<float>(),
                   {.rate = players_[i].rate, .loss = players_[i].loss});
      players_[i].local.call_off();
      wait(static_cast<int>(i));
    }
  // Waiting workers are granted in numerical order, starting after the last one that pushed.
  for (std::size_t k = 1; k <= players_.size(); ++k) {
    const std::size_t i = (static_cast<std::size_t>(worker) + k) % players_.size();
    if (players_[i].phase == Phase::waiting && std::ranges::find(ready_, i) == ready_.end() && server_.may_pull(static_cast<int>(i)))
      ready_.push_back(i);
  }
}

bool VirtualExecutor::compute(int worker, const step::Batch& batch, const step::Point& point) {
  Player& player = players_[static_cast<std::size_t>(worker)];
  LocalWorker& local = player.local;
  player.rate = static_cast<float>(point.rate);
  if (local.visits()) {
    if (local.needs_pull()) server_.pull(worker, local.parameters().data_ptr<float>(), player.rate);
    else server_.grant(worker);
    local.pulled();
  }
  local.take_the_module();
  if (apart_) module().refresh();
  pass_.begin_step(point.step);
  if (norms_.any()) norms_.before_pass();
  sums_ = recorded_.result(batch, [&] { return pass_.run(batch, batch.weight(1)); });
  local.after_pass(std::min(context().micro_batches, batch.inputs.size(0)));
  player.targets = batch.targets.numel();
  newest_ = worker;
  const bool reports = local.ends_period(), visits = local.take_gradient(player.rate);
  player.finite = !local.refused();
  player.sums.start(at::cat({sums_, local.finite().to(sums_.options())}));

  player.t_comp_s = seconds(player.times.backward);
  player.times = timing_->draw(worker, local.iteration() - 1, bytes());
  plan_visit(worker, reports, visits);
  return visits;
}

/// How long the minibatch took, and when the worker will visit the server. A gradient that was refused in the middle of a period is not
/// reported.
void VirtualExecutor::plan_visit(int worker, bool reports, bool visits) {
  Player& player = players_[static_cast<std::size_t>(worker)];
  const ps::Iteration& t = player.times;
  const Nanoseconds way = t.pull + (reports ? answer(t) : Nanoseconds(0)) + t.push;
  busy_ += t.forward + t.backward + (visits ? way : Nanoseconds(0)), ++iterations_;
  if (!visits) {
    player.ahead += t.forward + t.backward;
    return;
  }
  if (reports) plan(worker, Phase::computing, player.ahead + t.pull + t.forward);
  else plan(worker, Phase::pushing, player.ahead + t.pull + t.forward + t.backward + t.push);
  player.ahead = Nanoseconds(0);
}

std::unique_ptr<Central> make_virtual_executor(const step::Context& context, const Settings& settings) {
  return std::make_unique<VirtualExecutor>(context, settings);
}

}  // namespace paceline::central
