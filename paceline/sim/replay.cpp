#include "paceline/sim/replay.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/sim/replay_state.h"

namespace paceline::sim {
namespace {

using schedule::Action;

Faults with_slow_links(const Job& job) {
  ps::validate(job.timing, job.settings.data * job.settings.pipeline * job.settings.tensor);
  Faults faults = job.faults;
  for (const std::int64_t worker : job.timing.slow_links)
    faults.hosts.push_back({worker / job.cluster.devices, job.timing.slow_link_factor});
  return faults;
}

int servers_of(const Job& job) {
  for (const schedule::Program& program : job.stages)
    for (const Action& action : program)
      if (action.exchange == Action::Exchange::pull || action.exchange == Action::Exchange::push) return std::max(1, job.settings.servers);
  return 0;
}

}  // namespace

Replay::Replay(const Job& job, const perf::ComputeTimes& times, CollectiveModel collectives)
    : job_(job),
      times_(times),
      layout_(job.cluster, job.settings.data, job.settings.pipeline, job.settings.tensor, servers_of(job), job.hosts_per_switch,
              with_slow_links(job)),
      network_(loop_),
      collectives_(layout_, std::move(collectives)),
      slowdown_(job.cluster.device.slowdown_factor()) {
  if (std::ssize(job.stages) != job.settings.pipeline)
    throw ConfigError(fmt::format("there are {} programs for {} stages of the pipeline", job.stages.size(), job.settings.pipeline));
  if (job.timing.distribution == "trace")
    throw ConfigError(
        "timing.distribution=trace replays the visits of one run; to simulate with its times, use timing.distribution=durations");
  layout_.add_links(network_);
  loop_.add(static_cast<std::size_t>(layout_.ranks()) * kLanes);
  stages_ = prepared(job.stages), between_ = prepared(job.between), opening_ = prepared(job.opening);
  ensure(job.period >= 1 && (job.period == 1 || between_.size() == stages_.size()), "steps between meetings have programs");
  prepare_servers();
  for (const Stage& stage : stages_) timed_s_ = std::max(timed_s_, stage.compute_s);
  if (timed_s_ <= 0) timed_s_ = 1;
  ps::TimingConfig timing = job.timing;
  timing.compute_ms = timed_s_ * 1e3, timing.latency_ms = 1, timing.slow_links.clear();  // message times are drawn as factors too
  timing_ = ps::make_timing(timing, layout_.ranks(), job.seed);
  ranks_.resize(static_cast<std::size_t>(layout_.ranks()));
  step_ends_.resize(static_cast<std::size_t>(job.steps), Nanoseconds(0));
  wanted_ = job.steps * layout_.ranks();
}

std::vector<Stage> Replay::prepared(const std::vector<schedule::Program>& programs) const {
  std::vector<Stage> made;
  for (const schedule::Program& program : programs) {
    Stage stage{.program = &program};
    int crossings = 0;
    for (int i = 0; i < std::ssize(program); ++i) {
      const Action& action = program[static_cast<std::size_t>(i)];
      stage.lanes[static_cast<std::size_t>(action.lane)].push_back(i);
      stage.seconds.push_back(action.kind == Action::Kind::compute ? times_.seconds(action, job_.settings.samples_of(action.micro_batch))
                                                                   : 0);
      if (action.lane == Action::Lane::compute) stage.compute_s += stage.seconds.back();
      // Ranks of the data and tensor axes have the same program; a collective among pipeline stages is identified by its order in each
      // program.
      const bool across =
          action.kind == Action::Kind::communicate && action.axis == Action::Axis::pipeline && is_collective(action.exchange);
      stage.matches.push_back(across ? crossings++ : i);
      if (action.exchange == Action::Exchange::pull && stage.first_pull < 0) stage.first_pull = i;
      if (action.exchange == Action::Exchange::push) stage.last_push = i;
    }
    made.push_back(std::move(stage));
  }
  return made;
}

void Replay::prepare_servers() {
  if (layout_.servers() == 0) return;
  if (layout_.ranks() != job_.settings.data)
    throw ConfigError(
        fmt::format("workers of a parameter server hold whole models; set parallel.pipeline=1 and parallel.tensor=1, not {} and {}",
                    job_.settings.pipeline, job_.settings.tensor));
  if ((opening_.empty() ? stages_ : opening_).front().first_pull < 0 || stages_.front().last_push < 0)
    throw ConfigError("the program of a parameter server's worker pulls before the first step of a period and pushes behind the last");
  servers_.emplace(loop_, job_.servers, layout_.ranks());
}

Replayed Replay::run() {
  for (int rank = 0; rank < layout_.ranks(); ++rank) begin_step(rank);
  for (int rank = 0; rank < layout_.ranks(); ++rank) resume(rank);
  while (finished_ < wanted_ || (servers_ && servers_->synchronous() && servers_->busy())) {
    network_.settle();
    if (!loop_.next()) refuse_deadlock();
    const EventLoop::Actor actor = loop_.advance();
    ++events_;
    if (network_.owns(actor)) on_network(actor);
    else if (servers_ && actor == servers_->actor()) on_servers();
    else on_lane(actor);
  }
  for (int rank = 0; rank < layout_.ranks(); ++rank) account(rank);
  return result();
}

void Replay::begin_step(int rank) {
  RankState& at = state(rank);
  const auto place = static_cast<std::size_t>(layout_.place_of(rank).pipeline);
  const bool opens = at.step % job_.period == 0 && !opening_.empty();
  at.stage = &((at.step + 1) % job_.period == 0 ? stages_ : opens ? opening_ : between_)[place];
  const Stage& stage = *at.stage;
  const ps::Iteration drawn = timing_->draw(rank, at.attempt, 0);
  at.pace = seconds(drawn.forward + drawn.backward) / timed_s_, at.network = seconds(drawn.push) * 1e3;
  at.done.assign(stage.program->size(), false);
  at.left = stage.program->size();
  at.step_begun = loop_.now();
  for (RankState::Lane& lane : at.lanes) lane = {};
}

/// Starts everything that can start now, including following steps.
void Replay::resume(int rank) {
  RankState& at = state(rank);
  for (bool moved = true; moved && !at.over;) {
    moved = false;
    const Stage& stage = *at.stage;
    for (std::size_t lane = 0; lane < kLanes && !at.over; ++lane) {
      while (!at.over && !at.lanes[lane].busy && at.lanes[lane].head < stage.lanes[lane].size()) {
        const int action = stage.lanes[lane][at.lanes[lane].head];
        const auto& after = (*stage.program)[static_cast<std::size_t>(action)].after;
        if (!std::ranges::all_of(after, [&](int earlier) { return at.done[static_cast<std::size_t>(earlier)]; })) break;
        at.lanes[lane].busy = true, at.lanes[lane].begun = loop_.now();
        if (begin(rank, lane, action)) end_action(rank, lane, loop_.now()), moved = true;
      }
    }
    if (at.left == 0) end_step(rank), moved = true;
  }
}

bool Replay::begin(int rank, std::size_t lane, int action) {
  const Action& what = (*stage_of(rank).program)[static_cast<std::size_t>(action)];
  const Move::Side side{rank, static_cast<int>(lane), action, state(rank).attempt};
  if (what.kind == Action::Kind::wait) return true;
  if (what.kind == Action::Kind::compute) {
    RankState& at = state(rank);
    account(rank);
    ++at.computing;
    const double alone_s = stage_of(rank).seconds[static_cast<std::size_t>(action)] * at.pace;
    loop_.plan(lane_actor(rank, lane), nanoseconds(lane == 0 ? alone_s / speed(at) : alone_s));
    if (disturbs(lane)) disturb(rank, 1);
    return false;
  }
  switch (what.exchange) {
    case Action::Exchange::send: return begin_send(side);
    case Action::Exchange::receive: return begin_receive(side);
    case Action::Exchange::pull: return begin_pull(side);
    case Action::Exchange::push: return start_visit(side, Move::Kind::push), false;
    case Action::Exchange::none: return true;
    default: return begin_collective(side);
  }
}

double Replay::speed(const RankState& rank) const { return rank.disturbing > 0 ? 1 / slowdown_ : 1; }

/// An action on another lane begins or ends, which changes the speed of the compute lane.
void Replay::disturb(int rank, int change) {
  RankState& at = state(rank);
  const double before = speed(at);
  at.disturbing += change;
  const EventLoop::Actor computing = lane_actor(rank, 0);
  const EventLoop::Event& event = loop_.event(computing);
  if (before != speed(at) && event.pending) loop_.plan(computing, nanoseconds(seconds(event.due - loop_.now()) * before / speed(at)));
}

void Replay::on_lane(EventLoop::Actor actor) {
  const int rank = static_cast<int>(actor / kLanes);
  account(rank);
  --state(rank).computing;
  if (disturbs(actor % kLanes)) disturb(rank, -1);
  end_action(rank, actor % kLanes, state(rank).lanes[actor % kLanes].begun);
  resume(rank);
}

void Replay::complete(const Move::Side& side) {
  end_action(side.rank, static_cast<std::size_t>(side.lane), state(side.rank).lanes[static_cast<std::size_t>(side.lane)].begun);
  resume(side.rank);
}

void Replay::end_action(int rank, std::size_t lane, Nanoseconds begun) {
  RankState& at = state(rank);
  const int action = stage_of(rank).lanes[lane][at.lanes[lane].head];
  if (rank < job_.traced && loop_.now() > begun) tell(rank, lane, action, begun);
  at.done[static_cast<std::size_t>(action)] = true;
  at.lanes[lane].busy = false, ++at.lanes[lane].head, --at.left;
}

void Replay::end_step(int rank) {
  RankState& at = state(rank);
  const bool visits = servers_ && (at.step + 1) % job_.period == 0;  // in a synchronous job, the update ends that step
  if (at.step < job_.steps && !visits) {
    Nanoseconds& end = step_ends_[static_cast<std::size_t>(at.step)];
    end = std::max(end, loop_.now());
  }
  if (servers_) own_steps_.push_back(seconds(loop_.now() - at.step_begun));
  ++at.step, ++at.attempt, ++finished_;
  // Asynchronous workers continue until all steps together are done, so that none runs alone at the end.
  at.over = finished_ >= wanted_ || (at.step >= job_.steps && (!servers_ || servers_->synchronous()));
  if (!at.over) begin_step(rank);
}

/// Attributes the time since the rank's last change to what it was doing.
void Replay::account(int rank) {
  RankState& at = state(rank);
  const double passed = seconds(loop_.now() - at.since);
  at.since = loop_.now();
  (at.computing > 0 ? at.spent.computing : at.moving > 0 ? at.spent.communicating : at.spent.waiting) += passed;
}

void Replay::tell(int rank, std::size_t lane, int action, Nanoseconds begun) const {
  const Action& what = (*stage_of(rank).program)[static_cast<std::size_t>(action)];
  Span span{.rank = rank, .lane = schedule::name_of(static_cast<Action::Lane>(lane)), .begin = begun, .end = loop_.now()};
  if (what.kind == Action::Kind::compute && what.last > what.first)
    span.name = fmt::format("{} {}–{}, micro-batch {}", name_of(what.work), what.first, what.last - 1, what.micro_batch);
  else if (what.kind == Action::Kind::compute) span.name = std::string(name_of(what.work));
  else
    span.name = fmt::format("{} along {}, {:.4g} MB", name_of(what.exchange), name_of(what.axis),
                            static_cast<double>(what.elements) * what.element_bytes / 1e6);
  job_.trace(span);
}

/// In a trace, a rank's wait ends when what it waited for begins.
void Replay::tell_wait(const Move::Side& side) {
  RankState::Lane& lane = state(side.rank).lanes[static_cast<std::size_t>(side.lane)];
  if (side.rank >= job_.traced || lane.begun == loop_.now()) return;
  job_.trace({.rank = side.rank,
              .lane = schedule::name_of(static_cast<Action::Lane>(side.lane)),
              .name = fmt::format("wait for others: {}", name_of(action_of(side).exchange)),
              .begin = lane.begun,
              .end = loop_.now()});
  lane.begun = loop_.now();
}

void Replay::refuse_deadlock() const {
  for (int rank = 0; rank < layout_.ranks(); ++rank) {
    const RankState& at = state(rank);
    const Stage& stage = stage_of(rank);
    for (std::size_t lane = 0; lane < kLanes && !at.over; ++lane) {
      if (at.lanes[lane].head >= stage.lanes[lane].size()) continue;
      const int action = stage.lanes[lane][at.lanes[lane].head];
      const Action& what = (*stage.program)[static_cast<std::size_t>(action)];
      if (what.kind != Action::Kind::communicate || !at.lanes[lane].busy) continue;
      throw ConfigError(fmt::format(
          "rank {} waits forever in step {}: action {} of its program, {} along {} with tag {}, is not matched by any other rank", rank,
          at.step + 1, action, name_of(what.exchange), name_of(what.axis), what.tag));
    }
  }
  throw ConfigError("the programs wait forever for each other");
}

Replayed Replay::result() const {
  Replayed done{.seconds = seconds(loop_.now()), .synchronous = !servers_ || servers_->synchronous()};
  if (done.synchronous) {
    Nanoseconds before{0};
    for (const Nanoseconds end : step_ends_) done.steps.push_back(seconds(end - before)), before = end;
  } else {
    done.steps = own_steps_;
  }
  const double steps = static_cast<double>(done.synchronous ? job_.steps : finished_);
  const double samples = static_cast<double>(job_.settings.samples) * (done.synchronous ? job_.settings.data : 1);
  if (done.seconds > 0) done.steps_per_s = steps / done.seconds, done.samples_per_s = steps * samples / done.seconds;
  for (const RankState& rank : ranks_) done.ranks.push_back(rank.spent);
  done.links = links();
  if (servers_) done.staleness = servers_->staleness(), done.updates = servers_->updates(), done.dropped = servers_->dropped();
  done.events = events_, done.transfers = network_.transfers();
  return done;
}

Replayed replay(const Job& job, const perf::ComputeTimes& times, CollectiveModel collectives) {
  return Replay(job, times, std::move(collectives)).run();
}

}  // namespace paceline::sim
