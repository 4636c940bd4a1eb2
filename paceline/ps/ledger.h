// Which minibatches a server has already handled, by sequence number. A duplicate push or report changes nothing.
//
// Duplicates are normal: a worker retries after a reconnect, and a minibatch whose worker was lost is assigned to another one. Every push
// carries a watermark below which all minibatches are complete on all servers, so the ledger stays as small as what is in flight.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "paceline/ps/report.h"

namespace paceline::ps {

inline constexpr std::int64_t kMostMinibatches = std::int64_t{1} << 62;  // a larger number cannot be a minibatch

/// A set of sequence numbers from 1 on: a watermark, and intervals beyond it.
class SequenceSet {
 public:
  bool contains(std::int64_t number) const;
  /// Returns false if the number was there already.
  bool insert(std::int64_t number);
  void insert_all_below(std::int64_t number);
  std::int64_t watermark() const { return watermark_; }  // the smallest number that is not in the set
  bool empty() const { return watermark_ == 1 && intervals_.empty(); }

  void save(std::vector<std::int64_t>& into) const;
  /// Consumes what save() wrote from the front of `from`. Throws ConfigError if it is malformed.
  void load(std::span<const std::int64_t>& from);

 private:
  void merge_into_watermark();

  std::int64_t watermark_ = 1;
  std::map<std::int64_t, std::int64_t> intervals_;  // first → one past the last; disjoint, not adjacent, above the watermark
};

class Ledger {
 public:
  bool empty() const { return handled_.empty() && advised_.empty(); }
  bool handled(std::int64_t number) const { return handled_.contains(number); }
  /// The push was applied, gathered, dropped or refused. All minibatches below `complete_below` are complete.
  void handle(std::int64_t number, std::int64_t complete_below = 0);
  /// The answer to the first report of this minibatch; null if there was none, or if the minibatch has been handled.
  const Advice* advice(std::int64_t number) const;
  void advise(std::int64_t number, const Advice& advice) { advised_[number] = advice; }

  void save(std::vector<std::int64_t>& into) const;
  void load(std::span<const std::int64_t>& from);

 private:
  SequenceSet handled_;
  std::map<std::int64_t, Advice> advised_;  // minibatches that were reported and not pushed yet
};

}  // namespace paceline::ps
