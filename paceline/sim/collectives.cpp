#include "paceline/sim/collectives.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "paceline/base/error.h"

namespace paceline::sim {
namespace {

using schedule::Action;
using schedule::Collective;

constexpr int kVeryMany = 128;

/// Bytes that cross a host's link if its ranks first do what they can inside the host: those of a ring of hosts.
double crossing(Collective collective, double bytes, double hosts) {
  const double once = bytes * (hosts - 1) / hosts;
  return collective == Collective::barrier ? 0 : collective == Collective::allreduce ? 2 * once : once;
}

}  // namespace

bool is_collective(Action::Exchange exchange) { return exchange <= Action::Exchange::barrier; }

Collective collective_of(Action::Exchange exchange) {
  ensure(is_collective(exchange), "an exchange among all ranks of an axis is a collective");
  return static_cast<Collective>(exchange);  // both enumerations begin with the same seven
}
static_assert(static_cast<int>(Action::Exchange::allreduce) == static_cast<int>(Collective::allreduce) &&
              static_cast<int>(Action::Exchange::all_to_all) == static_cast<int>(Collective::all_to_all) &&
              static_cast<int>(Action::Exchange::barrier) == static_cast<int>(Collective::barrier));

const std::string& Collectives::algorithm_of(const Action& action) {
  std::string& chosen =
      chosen_[{static_cast<int>(action.exchange), static_cast<int>(action.axis), action.elements, action.element_bytes, action.algorithm}];
  if (chosen.empty()) chosen = model_.algorithm(action);
  return chosen;
}

const Collectives::Shape& Collectives::shape_of(const Action& action, const std::string& algorithm, int size, int per_host) {
  const Collective collective = collective_of(action.exchange);
  const auto& row = schedule::algorithm_for(algorithm, collective);
  schedule::Problem problem{.collective = collective,
                            .rank = 0,
                            .size = size,
                            .count = collective == Collective::barrier ? 0 : action.elements,
                            .per_host = per_host};
  if (problem.count > 0)
    problem = row.make.sized(problem, static_cast<std::int64_t>(static_cast<double>(action.elements) * action.element_bytes),
                             /*shares_memory=*/true);
  problem.chunks = std::min(problem.chunks, std::max<std::int64_t>(problem.count, 1));
  // Like perf, among many ranks: the next number of chunks costs nearly the same.
  if (size >= kVeryMany) problem.chunks = std::int64_t{1} << std::lround(std::log2(static_cast<double>(problem.chunks)));
  const auto [at, fresh] =
      shapes_.try_emplace({static_cast<int>(collective), algorithm, size, per_host, problem.chunks, problem.short_sum}, Shape{});
  Shape& shape = at->second;
  if (!fresh) return shape;
  // Parts of equal size, whatever the buffer's length, so that different lengths share their lists.
  if (problem.count > 0) problem.count = static_cast<std::int64_t>(size) * size * problem.chunks;
  shape.messages = static_cast<std::int64_t>(row.make.steps(problem).size()) * size / 2;
  if (shape.messages <= (layout_.is_even() ? kPlayedEachTime : kPlayedOnce))
    shape.lists = std::make_shared<const CollectiveLists>(row.make, problem);
  return shape;
}

/// Whether the model has more than links between hosts: measured collectives, or the wires of a mesh.
bool Collectives::is_known_better(const Action& action, const std::string& algorithm, int size, int per_host) const {
  const perf::Cluster& cluster = layout_.cluster();
  if (cluster.topology == perf::Topology::mesh || cluster.topology == perf::Topology::torus) return true;
  const std::string_view collective = name_of(collective_of(action.exchange));
  const double bytes = static_cast<double>(action.elements) * action.element_bytes;
  for (const std::string& by : {action.algorithm, algorithm})
    if (perf::measured_seconds(cluster, collective, by, size, per_host, bytes)) return true;
  return false;
}

Played Collectives::modelled(const Action& action, std::span<const int> members) const {
  std::set<int> hosts;
  for (const int rank : members) hosts.insert(layout_.host_of(rank));
  double slowest = 1;
  for (const int host : hosts) slowest = std::max(slowest, layout_.cluster().host_bytes_per_s() / layout_.host_bytes_per_s(host));
  Played played{.seconds = model_.seconds(action) * (hosts.size() > 1 ? slowest : 1.0)};
  const double bytes = static_cast<double>(action.elements) * action.element_bytes;
  const double moved = crossing(collective_of(action.exchange), bytes, static_cast<double>(hosts.size()));
  if (played.seconds > 0 && moved > 0)
    for (const int host : hosts)
      for (const bool out : {false, true})
        played.uses.push_back({layout_.host_link(host, out), std::min(1.0, moved / (layout_.host_bytes_per_s(host) * played.seconds))});
  return played;
}

Played Collectives::cost(const Action& action, int group, std::span<const double> arrivals) {
  const std::vector<int> members = layout_.members(action.axis, group);
  const std::string& algorithm = algorithm_of(action);
  const auto per_host =
      static_cast<int>(std::ranges::count(members, layout_.host_of(members.front()), [&](int rank) { return layout_.host_of(rank); }));
  const double bytes = static_cast<double>(action.elements) * action.element_bytes;
  const int size = static_cast<int>(members.size());
  const bool by_model = is_known_better(action, algorithm, size, per_host);
  const Shape shape = by_model ? Shape{} : shape_of(action, algorithm, size, per_host);
  const auto [least, most] = std::ranges::minmax_element(arrivals);
  if (shape.lists && shape.messages <= kPlayedEachTime && *least < *most) return play(*shape.lists, layout_, members, arrivals, bytes);
  const auto [at, fresh] =
      together_.try_emplace({static_cast<int>(action.axis), group, static_cast<int>(action.exchange), algorithm, bytes}, Played{});
  if (!fresh) return at->second;
  const std::vector<double> same(members.size(), 0.0);
  at->second = shape.lists ? play(*shape.lists, layout_, members, same, bytes) : modelled(action, members);
  return at->second;
}

}  // namespace paceline::sim
