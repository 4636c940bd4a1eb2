// Hand-made jobs, and what they cost.
#pragma once

#include <functional>

#include "paceline/perf/cluster.h"
#include "paceline/schedule/cost.h"
#include "paceline/sim/replay.h"

namespace paceline::sim {

/// A cluster of plain hosts: α, B in bytes per second, no additions to speak of.
inline perf::Cluster hosts(std::int64_t count, double alpha_s, double bytes_per_s, std::int64_t devices = 1) {
  const perf::Link link{.name = "link", .latency = {alpha_s, {}}, .bandwidth = {bytes_per_s, {}}};
  perf::Cluster cluster{.name = "hosts", .hosts = count, .devices = devices, .sides = {}, .device = {}, .inside = link, .between = link};
  cluster.device.flops.value = 1e12, cluster.device.memory_bandwidth.value = 1e30;
  return cluster;
}

/// A second for each of Action::last − first units, an update as `update_s` says.
class PlainTimes final : public perf::ComputeTimes {
 public:
  explicit PlainTimes(double unit_s = 1e-3, double update_s = 0) : unit_s_(unit_s), update_s_(update_s) {}
  double seconds(const schedule::Action& action, std::int64_t) const override {
    return action.work == schedule::Action::Work::update ? update_s_ : unit_s_ * (action.last - action.first);
  }
  perf::Doubt doubt(std::span<const std::int64_t>) const override { return {}; }

 private:
  double unit_s_, update_s_;
};

inline schedule::Action compute(schedule::Action::Work work, int first, int last, std::vector<int> after = {}) {
  schedule::Action action;
  action.kind = schedule::Action::Kind::compute, action.work = work, action.first = first, action.last = last,
  action.after = std::move(after);
  return action;
}

inline schedule::Action exchange(schedule::Action::Exchange what, std::int64_t elements, std::vector<int> after = {},
                                 schedule::Action::Lane lane = schedule::Action::Lane::compute,
                                 schedule::Action::Axis axis = schedule::Action::Axis::data) {
  schedule::Action action;
  action.kind = schedule::Action::Kind::communicate, action.exchange = what, action.elements = elements, action.after = std::move(after);
  action.lane = lane, action.axis = axis, action.algorithm = "ring";
  return action;
}

inline schedule::Action message(schedule::Action::Exchange what, std::int64_t elements, int peer, int tag, std::vector<int> after = {},
                                schedule::Action::Axis axis = schedule::Action::Axis::pipeline) {
  schedule::Action action = exchange(what, elements, std::move(after), schedule::Action::Lane::compute, axis);
  action.peer = peer, action.tag = tag;
  action.lane = what == schedule::Action::Exchange::send ? schedule::Action::Lane::send : schedule::Action::Lane::receive;
  return action;
}

/// By the lists of steps, as long as an action names its algorithm.
inline CollectiveModel plain_model(const perf::Cluster& cluster, int size) {
  return {.algorithm = [](const schedule::Action& action) { return action.algorithm; },
          .seconds =
              [cluster, size](const schedule::Action& action) {
                const auto& row = schedule::algorithm_for(action.algorithm, collective_of(action.exchange));
                return schedule::predict(perf::costs_of(cluster), row.make,
                                         {.collective = collective_of(action.exchange), .size = size, .count = action.elements},
                                         static_cast<std::int64_t>(action.element_bytes));
              }};
}

inline Replayed run(const Job& job, const perf::ComputeTimes& times = PlainTimes()) {
  return replay(job, times, plain_model(job.cluster, job.settings.data));
}

}  // namespace paceline::sim
