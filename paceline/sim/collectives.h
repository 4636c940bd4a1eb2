// How long the collectives of a simulated job take, group by group: simulated message by message if the lists are short enough, otherwise
// by the performance model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "paceline/sim/collective_play.h"

namespace paceline::sim {

/// What `perf` predicts for a collective among equal ranks.
struct CollectiveModel {
  std::function<std::string(const schedule::Action&)> algorithm;  // the algorithm that `comm` would use
  std::function<double(const schedule::Action&)> seconds;
};

class Collectives {
 public:
  Collectives(const ClusterMap& layout, CollectiveModel model) : layout_(layout), model_(std::move(model)) {}

  /// Up to the first number of messages, a collective is simulated every time, with the moments at which its ranks arrived. Up to the
  /// second, if hosts differ, it is simulated once for ranks that arrive together. Otherwise its time is the model's, times the factor of
  /// the slowest host.
  static constexpr std::int64_t kPlayedEachTime = 50'000, kPlayedOnce = 6'000'000;

  /// `arrivals`: seconds since any moment, by member of the group.
  Played cost(const schedule::Action& action, int group, std::span<const double> arrivals);

 private:
  struct Shape {
    std::shared_ptr<const CollectiveLists> lists;  // null: too long
    std::int64_t messages = 0;
  };
  const Shape& shape_of(const schedule::Action& action, const std::string& algorithm, int size, int per_host);
  bool is_known_better(const schedule::Action& action, const std::string& algorithm, int size, int per_host) const;
  Played modelled(const schedule::Action& action, std::span<const int> members) const;
  const std::string& algorithm_of(const schedule::Action& action);

  const ClusterMap& layout_;
  CollectiveModel model_;
  std::map<std::tuple<int, std::string, int, int, std::int64_t, bool>, Shape> shapes_;     // and size, per host, chunks, short sum
  std::map<std::tuple<int, int, int, std::string, double>, Played> together_;              // axis, group, collective, algorithm, bytes
  std::map<std::tuple<int, int, std::int64_t, double, std::string>, std::string> chosen_;  // by what an action says of it
};

/// ConfigError for an exchange that is not a collective.
schedule::Collective collective_of(schedule::Action::Exchange exchange);
bool is_collective(schedule::Action::Exchange exchange);

}  // namespace paceline::sim
