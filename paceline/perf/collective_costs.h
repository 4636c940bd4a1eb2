// What collectives cost, kept: the rounds of an algorithm by ranks and chunks, since making all ranks' lists takes long, and the seconds by
// length. Clusters that differ in their links share the rounds. "auto" is what `comm` takes (comm/rank_communicator.cpp), and an algorithm
// that does not offer a collective leaves it to a ring.
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
  std::optional<Source> source = {};  // of a time that stands in the cluster file; else the links' values count
  std::string outside = {};           // a note, where that time is of other sizes
};

/// Not thread-safe.
class CollectiveRounds {
 public:
  /// Rounds of a buffer that everything divides: `count` elements, each of which stands for any number of bytes.
  struct Normal {
    std::vector<schedule::Round> rounds;
    std::int64_t count = 1;
    double sent = 0;  // elements
  };
  const Normal& of(const Entry<schedule::Algorithm>& row, schedule::Problem problem);

 private:
  using Key = std::tuple<std::string_view, schedule::Collective, int, int, std::int64_t>;
  std::map<Key, Normal> kept_;
};

/// Not thread-safe, nor are two that share their rounds.
class CollectiveCosts {
 public:
  CollectiveCosts() = default;
  /// What was measured on this cluster goes before what its links say.
  explicit CollectiveCosts(const Cluster& cluster) : measured_(cluster.collectives) {}
  CollectiveCosts(const Cluster& cluster, const CollectiveCosts& other) : measured_(cluster.collectives), rounds_(other.rounds_) {}

  /// Of a buffer of this many bytes among `size` ranks, of which costs.per_host share a host. `contention`: of messages that go farther
  /// than to a neighbour (Placement::contention). ConfigError for an algorithm that is none.
  const CollectiveCost& of(const schedule::Costs& costs, schedule::Collective collective, const std::string& algorithm, int size,
                           double bytes, double contention = 1);

 private:
  using Key = std::tuple<std::string, schedule::Collective, int, int, double, double>;

  CollectiveCost by(const Entry<schedule::Algorithm>& row, schedule::Costs costs, schedule::Problem problem, double bytes,
                    double contention);

  /// Of the same ranks and hosts, by the action's algorithm ("auto" as well) or the one that it stands for.
  const CollectiveTimes* measured(const schedule::Problem& problem, std::string_view algorithm) const;

  std::vector<CollectiveTimes> measured_;
  std::shared_ptr<CollectiveRounds> rounds_ = std::make_shared<CollectiveRounds>();
  std::map<Key, CollectiveCost> costs_;  // of one cluster: its links differ in how many share them
};

}  // namespace paceline::perf
