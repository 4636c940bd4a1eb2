// What goes between the ranks of a replay: collectives, messages, visits to the servers.
#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/sim/replay_state.h"

namespace paceline::sim {
namespace {

using schedule::Action;

double bytes_of(const Action& action) { return static_cast<double>(action.elements) * action.element_bytes; }

}  // namespace

std::size_t Replay::add(Move move) {
  if (free_.empty()) {
    moves_.push_back(std::move(move));
    return moves_.size() - 1;
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  moves_[index] = std::move(move);
  return index;
}

/// A transfer of this rank begins to move, or has ended.
void Replay::move_on(const Move::Side& side, int change) {
  account(side.rank);
  state(side.rank).moving += change;
  if (disturbs(static_cast<std::size_t>(side.lane))) disturb(side.rank, change);
}

bool Replay::begin_collective(const Move::Side& side) {
  const Action& action = action_of(side);
  const int size = layout_.size(action.axis);
  if (size == 1) return true;
  const int group = layout_.group_of(action.axis, side.rank);
  const auto match = static_cast<std::uint64_t>(stage_of(side.rank).matches[static_cast<std::size_t>(side.action)]);
  const std::uint64_t key =
      (((static_cast<std::uint64_t>(state(side.rank).step) << 20 | match) << 20 | static_cast<std::uint64_t>(group)) << 2) |
      static_cast<std::uint64_t>(action.axis);
  PendingCollective& pending = pending_[key];
  if (pending.arrivals.empty()) pending.arrivals.resize(static_cast<std::size_t>(size));
  const Place place = layout_.place_of(side.rank);
  const int index = action.axis == Action::Axis::data ? place.data : action.axis == Action::Axis::pipeline ? place.pipeline : place.tensor;
  pending.arrivals[static_cast<std::size_t>(index)] = seconds(loop_.now());
  pending.sides.push_back(side);
  if (std::ssize(pending.sides) < size) return false;
  const Played played = collectives_.cost(action, group, pending.arrivals);
  double factor = 1;
  for (const Move::Side& one : pending.sides) {
    factor = std::max(factor, state(one.rank).network);
    tell_wait(one);
    move_on(one, 1);
  }
  const std::size_t move = add({.kind = Move::Kind::collective, .sides = std::move(pending.sides)});
  pending_.erase(key);
  network_.start(Nanoseconds(0), played.seconds * factor, played.uses, static_cast<std::int64_t>(move));
  return false;
}

/// The peer of a message.
int Replay::peer_of(const Move::Side& side) const {
  const Action& action = action_of(side);
  Place place = layout_.place_of(side.rank);
  const auto places_on = [&](int from, int size) { return ((from + action.peer) % size + size) % size; };
  if (action.axis == Action::Axis::pipeline) place.pipeline = action.peer;
  else if (action.axis == Action::Axis::data) place.data = places_on(place.data, job_.settings.data);
  else place.tensor = places_on(place.tensor, job_.settings.tensor);
  if (place.pipeline < 0 || place.pipeline >= job_.settings.pipeline)
    throw ConfigError(fmt::format("action {} of stage {} names stage {} of a pipeline of {}", side.action,
                                  layout_.place_of(side.rank).pipeline, place.pipeline, job_.settings.pipeline));
  return layout_.rank_at(place);
}

bool Replay::begin_send(const Move::Side& side) {
  const Action& action = action_of(side);
  const int peer = peer_of(side);
  const ClusterMap::Way way = layout_.between_ranks(side.rank, peer);
  const double factor = state(side.rank).network;
  move_on(side, 1);
  account(peer);
  ++state(peer).moving;
  const std::size_t move = add({.kind = Move::Kind::message, .sides = {side}, .to = peer, .tag = action.tag});
  network_.start(nanoseconds(way.latency_s * factor), bytes_of(action) / way.bytes_per_s * factor, way.uses,
                 static_cast<std::int64_t>(move));
  return false;
}

bool Replay::begin_receive(const Move::Side& side) {
  Channel& channel = channels_[{peer_of(side), side.rank, action_of(side).tag}];
  if (channel.arrived > 0) return --channel.arrived, true;
  channel.waiting.push_back(side);
  return false;
}

bool Replay::begin_pull(const Move::Side& side) {
  const bool first = side.action == stage_of(side.rank).first_pull;
  if (!first || servers_->pull(side.rank)) start_visit(side, Move::Kind::pull);
  return false;
}

/// One part from each server, or to each.
void Replay::start_visit(const Move::Side& side, Move::Kind kind) {
  const double bytes = bytes_of(action_of(side)) / layout_.servers(), factor = state(side.rank).network;
  move_on(side, 1);
  const std::size_t move = add({.kind = kind, .sides = {side}, .parts = layout_.servers()});
  for (int server = 0; server < layout_.servers(); ++server) {
    const int there = layout_.host_of_server(server), here = layout_.host_of(side.rank);
    const ClusterMap::Way way = kind == Move::Kind::pull ? layout_.between_hosts(there, here) : layout_.between_hosts(here, there);
    network_.start(nanoseconds(way.latency_s * factor), bytes / way.bytes_per_s * factor, way.uses, static_cast<std::int64_t>(move));
  }
}

void Replay::on_network(EventLoop::Actor actor) {
  const std::int64_t token = network_.on_event(actor);
  if (token < 0 || --moves_[static_cast<std::size_t>(token)].parts > 0) return;
  const Move move = std::move(moves_[static_cast<std::size_t>(token)]);
  free_.push_back(static_cast<std::size_t>(token));
  if (move.kind == Move::Kind::collective) {
    for (const Move::Side& side : move.sides) move_on(side, -1);
    for (const Move::Side& side : move.sides) complete(side);
    return;
  }
  const Move::Side& side = move.sides.front();
  if (!is_current(side)) return;  // the worker has abandoned the attempt
  move_on(side, -1);
  if (move.kind == Move::Kind::message) {
    account(move.to);
    --state(move.to).moving;
    Channel& channel = channels_[{side.rank, move.to, move.tag}];
    if (channel.waiting.empty()) {
      ++channel.arrived;
    } else {
      const Move::Side receiver = channel.waiting.front();
      channel.waiting.pop_front();
      complete(receiver);
    }
  } else if (move.kind == Move::Kind::push) {
    const Action& action = action_of(side);
    servers_->push(side.rank, side.action == stage_of(side.rank).last_push, {server_part_s(action, false), server_part_s(action, true)});
  }
  complete(side);
}

/// The part of a push that one server receives.
double Replay::server_part_s(const Action& push, bool update) const {
  Action part{.kind = Action::Kind::compute, .work = Action::Work::update, .elements = push.elements / layout_.servers()};
  if (update) return times_.seconds(part, 1);
  return bytes_of(push) / layout_.servers() / job_.cluster.device.reduce_bytes_per_s();
}

void Replay::on_servers() {
  const ServerQueue::Outcome outcome = servers_->on_event();
  // In a synchronous job, an update ends the step.
  if (const std::int64_t steps = servers_->updates() * job_.period; outcome.updated && steps <= job_.steps)
    step_ends_[static_cast<std::size_t>(steps) - 1] = loop_.now();
  for (const int rank : outcome.cancelled) start_over(rank);
  for (const int rank : outcome.granted) {
    const Stage& stage = stage_of(rank);
    const auto lane = static_cast<int>((*stage.program)[static_cast<std::size_t>(stage.first_pull)].lane);
    const Move::Side side{rank, lane, stage.first_pull, state(rank).attempt};
    tell_wait(side);
    start_visit(side, Move::Kind::pull);
  }
}

/// What the worker computes will not be used.
void Replay::start_over(int rank) {
  RankState& at = state(rank);
  account(rank);
  for (std::size_t lane = 0; lane < kLanes; ++lane) loop_.cancel(lane_actor(rank, lane));
  at.computing = at.moving = at.disturbing = 0;
  ++at.attempt;
  if (!opening_.empty()) at.step -= at.step % job_.period;  // it begins with a pull
  begin_step(rank);
  resume(rank);
}

std::vector<LinkUse> Replay::links() const {
  const double total = seconds(loop_.now());
  std::vector<LinkUse> uses;
  const auto add_kind = [&](const char* kind, const char* one, int begin, int end, auto link_of) {
    if (end <= begin || total <= 0) return;
    LinkUse use{.kind = kind};
    for (int i = begin; i < end; ++i)
      for (const bool out : {false, true}) {
        const double busy = network_.busy_s(link_of(i, out)) / total;
        use.mean += busy / (2.0 * (end - begin));
        if (busy > use.most) use.most = busy, use.busiest = fmt::format("{} {}, {}", one, i - begin, out ? "out" : "in");
      }
    uses.push_back(std::move(use));
  };
  const int workers = layout_.hosts() - layout_.servers();
  add_kind("ports inside hosts", "rank", 0, layout_.ranks(), [&](int i, bool out) { return layout_.port_link(i, out); });
  add_kind("hosts' links", "host", 0, workers, [&](int i, bool out) { return layout_.host_link(i, out); });
  add_kind("servers' links", "server", workers, layout_.hosts(), [&](int i, bool out) { return layout_.host_link(i, out); });
  if (layout_.has_switches())
    add_kind("switches", "switch", 0, layout_.switches(), [&](int i, bool out) { return layout_.switch_link(i, out); });
  return uses;
}

}  // namespace paceline::sim
