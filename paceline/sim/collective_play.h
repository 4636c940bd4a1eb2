// Simulates a collective message by message: all ranks' lists of steps (schedule/schedule.h), on hosts whose links may differ, from ranks
// that may arrive at different times.
//
// A rank begins a round when its previous one is over. A message starts once both of its ranks have begun the round, and takes as long as
// the slower side needs for everything that it sends or receives in the round: α, a gap for each further message, and the bytes divided by
// the bandwidth of the rank's port, of its host, whose ranks share it, and of the switches above. If all hosts are equal and all ranks have
// the same work in every round, the result is schedule/cost.h's critical path.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paceline/schedule/schedule.h"
#include "paceline/sim/cluster_map.h"

namespace paceline::sim {

/// The messages of all ranks of a collective, round by round, for a buffer of one element; `scale` of play() is the number of bytes.
class CollectiveLists {
 public:
  /// problem.rank does not matter.
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
  double seconds = 0;          // from the arrival of the last rank until the last one is done
  std::vector<Use> uses = {};  // of the links, at full speed
};

/// `members`: the ranks of the group; `arrivals`: seconds, by member; `bytes`: of the whole buffer.
Played play(const CollectiveLists& lists, const ClusterMap& layout, std::span<const int> members, std::span<const double> arrivals,
            double bytes);

}  // namespace paceline::sim
