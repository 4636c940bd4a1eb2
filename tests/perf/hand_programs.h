// Programs and times that tests make by hand.
#pragma once

#include <map>

#include "paceline/perf/cluster.h"
#include "paceline/perf/compute_times.h"

namespace paceline::perf {

/// Seconds of a unit's passes for each sample, the same for all units, and of an element's update and codes.
class HandTimes final : public ComputeTimes {
 public:
  double forward = 1, input_gradients = 1, weight_gradients = 1, update = 0, code = 0, around = 0, off = 0;

  double seconds(const schedule::Action& action, std::int64_t samples) const override {
    using Work = schedule::Action::Work;
    const double passes = static_cast<double>(action.last - action.first) * static_cast<double>(samples);
    switch (action.work) {
      case Work::forward: return forward * passes;
      case Work::backward: return (input_gradients + weight_gradients) * passes;
      case Work::input_gradients: return input_gradients * passes;
      case Work::weight_gradients: return weight_gradients * passes;
      case Work::update: return update * static_cast<double>(action.elements);
      case Work::encode:
      case Work::decode: return code * static_cast<double>(action.elements);
      default: return 0;
    }
  }
  double around_seconds(std::int64_t samples) const override { return around * static_cast<double>(samples); }
  Doubt doubt(std::span<const std::int64_t>) const override { return {.share = off}; }
};

inline schedule::Action pass_of(schedule::Action::Work work, int first, int last, int micro_batch = 0) {
  return {.kind = schedule::Action::Kind::compute, .work = work, .first = first, .last = last, .micro_batch = micro_batch};
}
inline schedule::Action exchange_of(schedule::Action::Exchange exchange, schedule::Action::Axis axis, std::int64_t elements,
                                    schedule::Action::Lane lane = schedule::Action::Lane::compute, std::vector<int> after = {}) {
  return {.kind = schedule::Action::Kind::communicate,
          .lane = lane,
          .after = std::move(after),
          .elements = elements,
          .exchange = exchange,
          .axis = axis,
          .algorithm = "ring"};
}
inline schedule::Action wait_for(std::vector<int> after) { return {.kind = schedule::Action::Kind::wait, .after = std::move(after)}; }

/// One device a host, so that every message costs α + bytes / B and additions nothing.
inline Cluster even_cluster(std::int64_t hosts, double alpha_s, double bytes_per_s) {
  const Link link{.name = "x", .latency = {alpha_s, Source::measured}, .bandwidth = {bytes_per_s, Source::measured}};
  Cluster cluster{.name = "even", .hosts = hosts, .sides = {}, .device = {}, .inside = link, .between = link};
  cluster.device.name = "d", cluster.device.flops = {1e12, Source::measured}, cluster.device.memory = {1e12, Source::measured};
  cluster.device.memory_bandwidth = {1e30, Source::measured};
  return cluster;
}

}  // namespace paceline::perf
