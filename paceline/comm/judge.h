// Finds out why an operation can never end, and which rank is the cause. Engines report what they see of the rank that is waited for; the
// store decides who is to blame (verdict.h); this turns both into the PeerError that the caller gets. The error always names ranks of the
// run, even if the group is only a part of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/activity.h"
#include "paceline/comm/operation.h"
#include "paceline/comm/store.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {

/// An operation with what messages about it need.
struct Call {
  Operation operation;
  std::int64_t sequence = 0;  // of this rank's operations on this communicator
  int rank = 0, ranks = 1;
};

/// The ranks of a group, and the store that they share with all others of the run.
class Judge {
 public:
  /// `store` may be null: then the rank that is waited for is to blame.
  Judge(std::shared_ptr<Store> store, int rank, int ranks);
  /// For a group of `members`; `place` is this rank's index among them.
  Judge of_group(const std::vector<int>& members, int place) const;

  int name(int rank) const { return rank < 0 ? rank : names_[static_cast<std::size_t>(rank)]; }
  int own_name() const { return name(rank_); }
  std::string who(int rank) const;  ///< "rank 2", or "rank 2 (0 of its group)"

  /// Advances the activity; turns what an engine throws about a peer into this judge's error.
  bool advance(Activity& activity, const Call& call, Waiter& waiter) const;
  /// Throws PeerError if the activity can never be done: its deadline passed, or a rank that it needs is gone, was lost or gave up. Returns
  /// true if it is done after all.
  bool check(Activity& activity, const Call& call, Nanoseconds waited, Waiter& waiter) const;
  /// Throws if a rank was lost that this call needs; `peer`: the rank it waits for.
  void check_loss(const Call& call, int peer) const;
  /// Tells the launcher, if there is one, which rank an error blames.
  void tell_launcher(const std::exception_ptr& error) const;

 private:
  struct Accused {
    int rank = -1;         // in the group
    std::string why;       // "did not come within 30 s"
    bool is_gone = false;  // nothing more will come from it
  };
  [[noreturn]] void accuse(const Accused& accused, const Call& call) const;
  [[noreturn]] void follow(int peer, int culprit, const Call& call) const;
  std::string in(const Call& call) const;
  std::string beyond(int accused, int culprit) const;

  std::shared_ptr<Store> store_;
  int rank_;                // in the group
  int run_size_;            // ranks of the run
  std::vector<int> names_;  // in the run, by rank in the group
  bool is_run_ = true;      // the group is the whole run
};

}  // namespace paceline::comm
