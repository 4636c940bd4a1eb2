// Caches what collectives cost: the rounds of an algorithm by ranks and chunks, since listing the steps of all ranks takes long, and the
// seconds by length. Clusters that differ only in their links share the rounds. "auto" is the algorithm that `comm` would choose
// (comm/rank_communicator.cpp); if an algorithm does not offer a collective, a ring is used.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "paceline/perf/cluster.h"
#include "paceline/schedule/rounds_cost.h"

namespace paceline::perf {

struct CollectiveCost {
  std::string_view algorithm;
  double seconds = 0;
  double sent_bytes = 0;              // by the rank that sends most
  std::optional<Source> source = {};  // of a time from the cluster file; nullopt: computed from the values of the links
  std::string outside = {};           // a note, if that time was measured at other sizes
};

/// Not thread-safe.
class CollectiveRounds {
 public:
  /// The rounds for a buffer that can be divided evenly: `count` elements, each of which stands for any number of bytes.
  struct Normal {
    std::vector<schedule::Round> rounds;
    std::int64_t count = 1;
    double sent = 0;  // elements
  };
  const Normal& of(const Entry<schedule::Algorithm>& row, schedule::Problem problem);

 private:
  using Key = std::tuple<std::string_view, schedule::Collective, int, int, std::int64_t, bool>;
  std::map<Key, Normal> kept_;
};

/// Not thread-safe, nor are two that share their rounds.
class CollectiveCosts {
 public:
  CollectiveCosts() = default;
  /// Times that were measured on this cluster take precedence over those computed from its links.
  explicit CollectiveCosts(const Cluster& cluster) : measured_(cluster.collectives) {}
  CollectiveCosts(const Cluster& cluster, const CollectiveCosts& other) : measured_(cluster.collectives), rounds_(other.rounds_) {}

  /// The cost for a buffer of this many bytes among `size` ranks, costs.per_host of which share a host. `contention`: of messages to ranks
  /// that are not neighbours (Placement::contention). ConfigError for an unknown algorithm.
  const CollectiveCost& of(const schedule::Costs& costs, schedule::Collective collective, const std::string& algorithm, int size,
                           double bytes, double contention = 1);

 private:
  using Key = std::tuple<std::string, schedule::Collective, int, int, double, double>;

  CollectiveCost by(const Entry<schedule::Algorithm>& row, schedule::Costs costs, schedule::Problem problem, double bytes,
                    double contention);

  /// Measured times with these ranks and hosts, by the requested algorithm, which may be "auto", or the one that it stands for.
  const CollectiveTimes* measured(const schedule::Problem& problem, std::string_view algorithm) const;

  std::vector<CollectiveTimes> measured_;
  std::shared_ptr<CollectiveRounds> rounds_ = std::make_shared<CollectiveRounds>();
  std::map<Key, CollectiveCost> costs_;  // for one cluster; entries differ in how many ranks share its links
};

}  // namespace paceline::perf
