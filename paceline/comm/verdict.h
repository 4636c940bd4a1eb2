// Who is to blame when a run fails. One place decides, so that all ranks and the launcher name the same rank: the server of the store in
// rank 0, or the common store of ranks that are threads. These are its rules, without threads, sockets or a clock of their own.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "paceline/base/clock.h"

namespace paceline::comm {

/// A rank that was given up permanently.
struct Loss {
  int rank = -1;
  Nanoseconds silent{0};

  bool operator==(const Loss&) const = default;
  std::string text() const;  ///< "is silent: no heartbeat for 4 s"
};

/// Counts how long each rank has been silent. Only time in which the counter itself ran counts: after a pause of its own (SIGSTOP, a
/// debugger, a suspended laptop, a host without a free core) the beats of the others are waiting to be read, and no rank is to blame.
class Silence {
 public:
  /// The most time that counts between two looks, whatever the clock says.
  static constexpr Nanoseconds kMostPerLook = std::chrono::milliseconds(500);

  /// This rank is alive. It may be silent for `limit` from now on; 0: forever.
  void beat(int rank, Nanoseconds limit);
  /// It closed its connection: it left or died, which its peers can tell better.
  void forget(int rank) { ranks_.erase(rank); }
  /// Silent for more than half of its limit: time to find out whether its process still runs, if that can be seen.
  bool is_quiet(int rank) const;
  /// Its process runs but had no time to beat: its silence is counted from zero again.
  void excuse(int rank) { ranks_.at(rank).silent = Nanoseconds(0); }
  /// Called several times per limit, after the beats that have arrived were counted.
  void look(Nanoseconds now);

  bool watches() const { return !ranks_.empty(); }
  /// Decided once: the first rank whose limit passed; of several, the one that was silent longest.
  const std::optional<Loss>& loss() const { return loss_; }

 private:
  struct Heard {
    Nanoseconds limit{0}, silent{0};
  };
  std::map<int, Heard> ranks_;
  std::optional<Nanoseconds> looked_;
  std::optional<Loss> loss_;
};

/// Ranks that wait for one another give up at nearly the same time, and each accuses the one it waits for. The last of that chain, which
/// accuses nobody, is the culprit.
class Accusations {
 public:
  void accuse(int accuser, int accused) { accused_by_.insert_or_assign(accuser, accused); }
  int accused(int accuser) const { return accused_by_.at(accuser); }
  struct Result {
    int culprit = -1;
    bool circle = false;  // all wait for one another; the culprit is the rank that the accuser waits for
  };
  Result follow(int accuser) const;

 private:
  std::map<int, int> accused_by_;
};

}  // namespace paceline::comm
