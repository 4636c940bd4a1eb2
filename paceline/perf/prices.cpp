#include "paceline/perf/prices.h"

#include <algorithm>

#include "paceline/perf/uncertainty.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using Axis = Action::Axis;
using Exchange = Action::Exchange;

static_assert(static_cast<int>(Exchange::barrier) == static_cast<int>(schedule::Collective::barrier));
schedule::Collective collective_of(Exchange exchange) { return static_cast<schedule::Collective>(exchange); }

double sent_bytes_of(const Action& action) { return static_cast<double>(action.elements) * action.element_bytes; }

}  // namespace

std::size_t Prices::Hash::operator()(const Key& key) const {
  const auto kind = static_cast<std::size_t>(key.exchange) * kProgramAxes + static_cast<std::size_t>(key.axis);
  return std::hash<std::int64_t>()(key.elements) * 31 + std::hash<double>()(key.element_bytes) * 17 + kind;
}

Prices::Prices(const Cluster& cluster, const schedule::ProgramSettings& settings, const CostOptions& options, CollectiveCosts& collectives)
    : place_(cluster, settings), device_(cluster.device), settings_(settings), options_(options), collectives_(collectives) {
  for (std::size_t axis = 0; axis < kProgramAxes; ++axis) {
    costs_[axis] = place_.costs(static_cast<Axis>(axis));
    link_doubt_.of[axis] = uncertainty_of(place_.source(static_cast<Axis>(axis)));
  }
}

const CollectiveCost& Prices::collective(const Action& action) {
  return collectives_.of(costs_[static_cast<std::size_t>(action.axis)], collective_of(action.exchange), action.algorithm,
                         place_.size(action.axis), sent_bytes_of(action), place_.contention(action.axis));
}

double Prices::doubt(const CollectiveCost& cost, Axis axis) const {
  return (cost.source ? uncertainty_of(*cost.source) : link_doubt_[axis]) + (cost.outside.empty() ? 0 : kOutside);
}

Price Prices::of(const Action& action, int stage, const ComputeTimes& times) {
  switch (action.exchange) {
    case Exchange::none:
    case Exchange::receive: return {};
    case Exchange::send: return {send_seconds(action, stage), sent_bytes_of(action), link_doubt_[action.axis]};
    case Exchange::pull:
    case Exchange::push: return {server_seconds(action, times), sent_bytes_of(action), link_doubt_[action.axis]};
    default: break;
  }
  const Key key{action.exchange, action.axis, action.elements, action.element_bytes};
  Last& last = last_[static_cast<std::size_t>(action.exchange)][static_cast<std::size_t>(action.axis)];
  if (!last.known || !(last.key == key)) last = {key, &known_[key]};  // a map entry keeps its address
  Known& known = *last.known;
  if (known.algorithm.empty() || known.algorithm != action.algorithm) {
    const CollectiveCost& cost = collective(action);
    known = {action.algorithm, {cost.seconds, cost.sent_bytes, doubt(cost, action.axis), cost.outside}};
  }
  return known.price;
}

double Prices::page_seconds(const Action& action) const {
  const bool scatters = action.exchange == Exchange::reduce_scatter && settings_.zero >= 2;
  const bool gathers = action.exchange == Exchange::all_gather && settings_.zero == 3;
  if (action.axis != Axis::data || (!scatters && !gathers) || device_.page_bandwidth.value <= 0) return 0;
  return sent_bytes_of(action) / device_.page_bandwidth.value;
}

double Prices::send_seconds(const Action& action, int stage) const {
  const schedule::Link link =
      action.axis == Axis::pipeline ? place_.between_stages(stage, action.peer) : place_.to_neighbour(action.axis, action.peer);
  return link.alpha_s + sent_bytes_of(action) / link.bytes_per_s;
}

ServerLoad Prices::load(double bytes) const {
  const schedule::Link worker = place_.to_server();
  const std::int64_t servers = settings_.servers;
  return {.workers = settings_.data,
          .servers = options_.server_hosts > 0 ? std::min(options_.server_hosts, servers) : servers,
          .bytes = bytes,
          .worker_bytes_per_s = worker.bytes_per_s,
          .server_bytes_per_s = place_.server_link().bytes_per_s,
          .alpha_s = worker.alpha_s};
}

double Prices::update_seconds(const Action& action, const ComputeTimes& times) const {
  if (action.exchange != Exchange::push) return 0;
  const Action update{.kind = Action::Kind::compute, .work = Action::Work::update, .elements = action.elements / settings_.servers};
  return times.seconds(update, 1);
}

double Prices::visit(const Action& action, const ComputeTimes& times) const {
  return visit_seconds(load(sent_bytes_of(action))) + update_seconds(action, times);
}

// A server on the workers' host is memory: a pull copies the parameters; a push checks whether all values are finite, copies them, and adds
// the gradient. The pushes of a round follow one another. A worker visits several servers in turn, while the next worker is at the previous
// server; the last worker finds them all free, and waits while each updates its part.
double Prices::local_server_seconds(const Action& action, const ComputeTimes& times) const {
  const double bytes = sent_bytes_of(action), alpha = place_.to_server().alpha_s;
  const double copy = 2 * bytes / device_.memory_bandwidth.value * std::max(options_.crowd, 1.0);
  if (action.exchange == Exchange::pull) return alpha + copy;
  const double rounds = static_cast<double>(settings_.data + settings_.servers - 1) / settings_.servers;
  const double adding = options_.asynchronous ? 0 : rounds * bytes / device_.reduce_bytes_per_s();
  return alpha + 1.5 * copy + adding + settings_.servers * update_seconds(action, times);
}

double Prices::server_seconds(const Action& action, const ComputeTimes& times) const {
  if (!place_.crosses_hosts(Axis::server)) return local_server_seconds(action, times);
  const ServerLoad all = load(sent_bytes_of(action));
  if (!options_.asynchronous) return incast_seconds(all) + update_seconds(action, times);  // one update for all of them
  return all.alpha_s + std::max(all.bytes / all.worker_bytes_per_s, visit_seconds(all)) + update_seconds(action, times);
}

}  // namespace paceline::perf
