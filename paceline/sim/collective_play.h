// Simulates a collective message by message: all ranks' lists of steps (schedule/schedule.h), on hosts whose links may differ, by ranks
// that may arrive at different times.
//
// A rank begins a round when its previous one is over. A message starts once both of its ranks have begun the round, and takes as long as
// the slower side needs for everything that it sends or receives in the round: α, a gap for each additional message, and the bytes divided
// by the least of three bandwidths: its port's, its share of its host's, and that of the switches above. If all hosts are alike and all
// ranks have the same work in every round, the result is schedule/cost.h's critical path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paceline/schedule/schedule.h"
#include "paceline/sim/cluster_map.h"

namespace paceline::sim {

/// The messages of all ranks of a collective, round by round, for a buffer of one element; `bytes` of play() scales it.
class CollectiveLists {
 public:
  /// problem.rank is ignored.
  CollectiveLists(const schedule::Algorithm& algorithm, schedule::Problem problem);

  struct Message {
    int from = 0, to = 0;
    double part = 0;  // of the buffer
  };
  struct Round {
    std::vector<Message> messages = {};
    struct Addition {
      int rank = 0;
      double reduced = 0, held = 0;  // parts of the buffer
    };
    std::vector<Addition> additions = {};
  };
  const std::vector<Round>& rounds() const { return rounds_; }
  int size() const { return size_; }

 private:
  std::vector<Round> rounds_;
  int size_;
};

struct Played {
  double seconds = 0;          // from when the last rank arrives until the last one is done
  std::vector<Use> uses = {};  // of the links, at full speed
};

/// `members`: the ranks of the group; `arrivals`: when each member arrives, in seconds; `bytes`: of the whole buffer.
Played play(const CollectiveLists& lists, const ClusterMap& layout, std::span<const int> members, std::span<const double> arrivals,
            double bytes);

}  // namespace paceline::sim
