// Workers under a virtual clock: one thread plays them all in the order of their events, on one module.
//
// A worker's gradient is computed at the very moment at which it pulls, on the server's parameters where they lie; it is kept until its
// push is due. So M workers cost M gradients of memory and next to no time: no parameters are copied, and the module is recorded once on a
// GPU. Where a rule sends workers something else than the parameters (dana), or workers make steps of their own (downpour, easgd,
// ps.optimizer=worker), they are copied after all.
//
//   request ─ granted: pull, compute ─ report (loss, statistics → factor) ─ push ─ request …
//
// The order of events is a function of the recipe and the seed: ties go to the event that was planned first.
#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/ps/kernels.h"
#include "paceline/strategies/central.h"
#include "paceline/strategies/per_worker.h"
#include "paceline/strategies/updater.h"
#include "paceline/tensor/read_back.h"

namespace paceline::strategies {
namespace {

enum class Phase : std::int64_t { computing, pushing, waiting };

/// One worker.
struct Player {
  Phase phase = Phase::waiting;
  Nanoseconds due{0};
  std::int64_t planned = 0;    // order of planning
  std::int64_t iteration = 0;  // its own
  std::int64_t local = 0;      // steps since its last visit to the server
  std::int64_t targets = 1;    // of its batch
  ps::Iteration times;
  Nanoseconds ahead{0};  // spent on steps of its own since its last visit
  double t_comp_s = 0;   // of its last gradient but this
  double loss = 0;
  float scale = 1, rate = 0;       // that the server advised; of the schedule, when it got its batch
  at::Tensor gradient;             // [length]
  at::Tensor statistics, running;  // [n]: of the batch; its own
  at::Tensor replica, momentum;    // [length]: its parameters, where it goes on by itself
  tensor::ReadBack sums;
};

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(const Context& context, const ps::PsConfig& config)
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

  StepResult step(const Batch& batch, const Point& point) override {
    server_->use_stream(tensor::current_stream(context_.module.device()));
    while (ready_.empty()) next_event();
    Player& player = players_[ready_.front()];
    const int worker = static_cast<int>(ready_.front());
    ready_.pop_front();
    compute(worker, player, batch, point);
    while (ready_.empty() && !loss_pending()) next_event();  // while a GPU computes, the host goes on with what lies before
    return {sums_, batch.targets.numel()};
  }

  void show(const std::string& view) override {
    if (shown_) return show_statistics(view);
    shown_ = true;
    if (apart_) own_parameters_ = parameters().clone(), at::Tensor(parameters()).copy_(server_parameters());
    context_.module.refresh();
    show_statistics(view);
  }

  void resume_training() override {
    shown_ = false;
    if (apart_) at::Tensor(parameters()).copy_(own_parameters_), own_parameters_.reset(), context_.module.refresh();
  }

  std::vector<NamedTensor> save() override;
  void load(std::span<const NamedTensor> state) override;

  observe::Served served() const override {
    observe::Served served = served_by(*server_);
    served.virtual_s = seconds(clock_.now());
    served.predictor_ms = 1e3 * seconds(predictors());
    served.iteration_ms = iterations_ > 0 ? 1e3 * seconds(busy_) / static_cast<double>(iterations_) : observe::kUnknown;
    return served;
  }

 private:
  const at::Tensor& parameters() const { return context_.module.arena().parameters(); }
  const at::Tensor& gradients() const { return context_.module.arena().gradients(); }
  at::Tensor view_of(float* data, std::int64_t count) const { return at::from_blob(data, {count}, parameters().options()); }
  at::Tensor server_parameters() const { return view_of(server_->parameters(), parameters().numel()); }
  at::Tensor server_statistics() const { return view_of(server_->statistics(), norms_.count()); }
  bool predicts() const { return config_.rule == "lc_asgd"; }
  Nanoseconds predictors() const { return Nanoseconds(predicts() ? std::llround(context_.timing.predictor_ms * 1e6) : 0); }
  /// For which a worker waits before it goes on with its gradient: only lc_asgd has one.
  Nanoseconds answer(const ps::Iteration& times) const { return predicts() ? times.report + predictors() : Nanoseconds(0); }
  std::int64_t bytes() const { return parameters().numel() * 4; }

  void begin(Player& player) {
    player.gradient = at::zeros_like(gradients());
    if (norms_.any()) player.running = norms_.initial(), player.statistics = norms_.initial();
    if (local_) player.replica = server_parameters().clone();
    if (updater_ && !updater_->buffers().empty())
      player.momentum = at::zeros({std::ssize(updater_->buffers()), parameters().numel()}, parameters().options());
  }

  void show_statistics(const std::string& view) {
    if (!norms_.any()) return;
    norms_.show(view == kWorkerView ? players_.front().running : server_statistics());
  }

  /// On a GPU: whether the next event needs a loss that is still being computed.
  bool loss_pending() const { return !context_.module.device().is_cpu() && newest_ >= 0 && next_player() == newest_; }

  std::int64_t next_player() const {
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

  void plan(Player& player, Phase phase, Nanoseconds after) {
    player.phase = phase, player.due = clock_.now() + after, player.planned = planned_++;
  }

  void next_event() {
    const std::int64_t index = next_player();
    ensure(index >= 0, "some worker of a parameter server can always go on");
    const int worker = static_cast<int>(index);
    Player& player = players_[static_cast<std::size_t>(index)];
    clock_.advance_to(player.due);
    if (player.phase == Phase::computing) {  // the forward pass is done
      const at::Tensor& sums = player.sums.wait();
      player.loss = sums[0].item<double>() / static_cast<double>(player.targets);
      const ps::Advice advice =
          server_->report(worker, {.loss = player.loss, .t_comm_s = seconds(player.times.pull), .t_comp_s = player.t_comp_s},
                          norms_.any() ? player.statistics.data_ptr<float>() : nullptr);
      player.scale = static_cast<float>(advice.scale);
      plan(player, Phase::pushing, answer(player.times) + player.times.backward + player.times.push);
    } else {
      push(worker, player);
    }
  }

  void push(int worker, Player& player) {
    float* sent = (replicas_ ? player.replica : player.gradient).data_ptr<float>();
    const bool finite = std::isfinite(player.loss) && (!context_.module.device().is_cpu() || ps::all_finite(sent, server_->length()));
    if (finite) server_->push(worker, sent, {.rate = player.rate, .scale = player.scale, .loss = player.loss});
    else server_->refuse(worker);
    if (!apart_) context_.module.refresh();
    player.phase = Phase::waiting, player.local = 0;
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

  void compute(int worker, Player& player, const Batch& batch, const Point& point) {
    const bool visits = player.local == 0;
    player.rate = static_cast<float>(point.rate);
    if (visits) {
      float* into = (local_ ? player.replica : parameters()).data_ptr<float>();
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
    player.sums.start(sums_);
    player.targets = batch.targets.numel();
    newest_ = worker;
    const bool last = ++player.local >= server_->rule().period();
    go_on(player, visits, last);

    player.t_comp_s = seconds(player.times.backward);
    player.times = timing_->draw(worker, player.iteration++, bytes());
    const ps::Iteration& t = player.times;
    busy_ += t.forward + t.backward + (last ? t.pull + answer(t) + t.push : Nanoseconds(0)), ++iterations_;
    if (last) {
      plan(player, Phase::computing, player.ahead + t.pull + t.forward);
      player.ahead = Nanoseconds(0);
    } else {
      player.ahead += t.forward + t.backward;
      ready_.push_back(static_cast<std::size_t>(worker));
    }
  }

  /// The worker's gradient goes into what it will push, and, where it goes on by itself, into its replica.
  void go_on(Player& player, bool first, bool last) {
    if (steps_ && first) player.gradient.copy_(player.replica);  // what it pulled; the way from there is pushed
    if (!updater_ && first) player.gradient.copy_(gradients());
    if (!updater_ && !first) player.gradient.add_(gradients());
    if (!local_) return;
    if (updater_ && context_.module.device().is_cpu() && !ps::all_finite(gradients().data_ptr<float>(), gradients().numel())) {
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

  const Context& context_;
  ps::PsConfig config_;
  LocalPass pass_;
  RecordedStep recorded_;
  NormReports norms_;
  std::unique_ptr<ps::Timing> timing_;
  std::optional<ps::Server> server_;
  std::optional<Updater> updater_;  // of workers that go on by themselves
  std::vector<Player> players_;
  std::deque<std::size_t> ready_;  // may pull now
  VirtualClock clock_;
  Nanoseconds busy_{0};
  std::int64_t iterations_ = 0;  // of all workers; `busy_` is their time
  std::int64_t planned_ = 0, newest_ = -1;
  bool apart_ = false;     // the module's parameters are not the server's
  bool local_ = false;     // workers make steps of their own
  bool replicas_ = false;  // and push their parameters
  bool steps_ = false;     // or the steps that their own optimizers made
  bool shown_ = false;
  at::Tensor sums_, own_parameters_;
};

constexpr std::int64_t kNumbers = 13, kValues = 5;  // of a player in a checkpoint

std::vector<NamedTensor> VirtualExecutor::save() {
  std::vector<NamedTensor> state = save_server(*server_, "ps.", context_.module.device());
  const auto workers = std::ssize(players_);
  at::Tensor numbers = at::zeros({workers, kNumbers}, at::kLong), values = at::zeros({workers, kValues}, at::kDouble);
  std::vector<at::Tensor> gradients, batches, runnings, replicas, momenta;
  for (std::int64_t i = 0; i < workers; ++i) {
    Player& p = players_[static_cast<std::size_t>(i)];
    if (p.phase == Phase::computing) values[i][3] = p.sums.wait()[0];
    const auto place = std::ranges::find(ready_, static_cast<std::size_t>(i));
    const std::int64_t turn = place == ready_.end() ? -1 : place - ready_.begin();
    const std::int64_t row[kNumbers] = {static_cast<std::int64_t>(p.phase),
                                        p.due.count(),
                                        p.planned,
                                        p.iteration,
                                        p.local,
                                        p.times.pull.count(),
                                        p.times.forward.count(),
                                        p.times.report.count(),
                                        p.times.backward.count(),
                                        p.times.push.count(),
                                        turn,
                                        p.ahead.count(),
                                        p.targets};
    std::copy_n(row, kNumbers, numbers[i].data_ptr<std::int64_t>());
    values[i][0] = p.loss, values[i][1] = p.scale, values[i][2] = p.t_comp_s, values[i][4] = p.rate;
    gradients.push_back(p.gradient);
    if (norms_.any()) batches.push_back(p.statistics), runnings.push_back(p.running);
    if (local_) replicas.push_back(p.replica);
    if (p.momentum.defined()) momenta.push_back(p.momentum);
  }
  state.push_back({"ps.workers.numbers", numbers});
  state.push_back({"ps.workers.values", values});
  state.push_back({"ps.clock", at::tensor(at::ArrayRef<std::int64_t>({clock_.now().count(), planned_, busy_.count(), iterations_}))});
  const auto keep = [&](const char* name, const std::vector<at::Tensor>& rows) {
    if (!rows.empty()) state.push_back({name, at::stack(rows)});
  };
  keep("ps.workers.gradients", gradients), keep("ps.workers.batch_statistics", batches), keep("ps.workers.statistics", runnings);
  keep("ps.workers.replicas", replicas), keep("ps.workers.momentum", momenta);
  if (apart_) state.push_back({"ps.parameters", server_parameters().clone()});
  return state;
}

void VirtualExecutor::load(std::span<const NamedTensor> state) {
  const at::Tensor numbers = find_saved(state, "ps.workers.numbers"), values = find_saved(state, "ps.workers.values");
  if (numbers.size(0) != std::ssize(players_))
    throw ConfigError(fmt::format("the checkpoint has {} workers under way on its virtual clock; resume with --workers {}", numbers.size(0),
                                  numbers.size(0)));
  if (numbers.size(1) != kNumbers || values.size(1) != kValues)
    throw ConfigError("the checkpoint's virtual clock was written by another version of Paceline; resume with that one");
  load_server(*server_, state, "ps.", context_.module.device());
  const at::Tensor clock = find_saved(state, "ps.clock");
  clock_ = VirtualClock();
  clock_.advance_to(Nanoseconds(clock[0].item<std::int64_t>()));
  planned_ = clock[1].item<std::int64_t>(), busy_ = Nanoseconds(clock[2].item<std::int64_t>());
  iterations_ = clock[3].item<std::int64_t>();
  const auto rows = [&](const char* name, auto member) {
    const at::Tensor saved = find_saved(state, name);
    for (std::size_t i = 0; i < players_.size(); ++i) (players_[i].*member).copy_(saved[static_cast<std::int64_t>(i)]);
  };
  rows("ps.workers.gradients", &Player::gradient);
  if (norms_.any()) rows("ps.workers.batch_statistics", &Player::statistics), rows("ps.workers.statistics", &Player::running);
  if (local_) rows("ps.workers.replicas", &Player::replica);
  if (players_.front().momentum.defined()) rows("ps.workers.momentum", &Player::momentum);
  if (apart_) server_parameters().copy_(find_saved(state, "ps.parameters"));
  std::vector<std::pair<std::int64_t, std::size_t>> turns;
  for (std::size_t i = 0; i < players_.size(); ++i) {
    Player& p = players_[i];
    const auto* row = numbers[static_cast<std::int64_t>(i)].data_ptr<std::int64_t>();
    p.phase = static_cast<Phase>(row[0]), p.due = Nanoseconds(row[1]), p.planned = row[2], p.iteration = row[3], p.local = row[4];
    p.times = {.pull = Nanoseconds(row[5]),
               .forward = Nanoseconds(row[6]),
               .report = Nanoseconds(row[7]),
               .backward = Nanoseconds(row[8]),
               .push = Nanoseconds(row[9])};
    p.loss = values[static_cast<std::int64_t>(i)][0].item<double>(), p.scale = values[static_cast<std::int64_t>(i)][1].item<float>();
    p.t_comp_s = values[static_cast<std::int64_t>(i)][2].item<double>(), p.rate = values[static_cast<std::int64_t>(i)][4].item<float>();
    p.ahead = Nanoseconds(row[11]), p.targets = row[12];
    p.sums.start(at::stack({values[static_cast<std::int64_t>(i)][3], at::zeros({}, at::kDouble)}));
    if (row[10] >= 0) turns.emplace_back(row[10], i);
  }
  std::ranges::sort(turns);
  ready_.clear();
  for (const auto& [turn, i] : turns) ready_.push_back(i);
}

}  // namespace

std::unique_ptr<Executor> make_virtual_executor(const Context& context, const ps::PsConfig& ps) {
  return std::make_unique<VirtualExecutor>(context, ps);
}

}  // namespace paceline::strategies
