// What all consistencies but ssp share: gradients are gathered until there are K, then one update is made with their mean.
//
// They differ in K and in two answers (Dutta et al., "Slow and stale gradients can win the race", AISTATS 2018, section 2):
//
//   on an update, what others compute … | contributors wait for it: K distinct workers         | contributors pull again at once
//   … is cancelled                      | k_sync    (K = all workers: bsp)                     | k_batch_sync
//   … continues                         | k_async   (K grows: adasync)                         | k_batch_async   (K = 1: asp)
//
// Workers join and leave, so K may exceed the number that are left: an update is also made when every present worker waits for it, and
// when none is present any more. Invariant: while gradients are gathered, some present worker can still contribute, so no wait is endless.
#pragma once

#include <limits>
#include <map>

#include "paceline/ps/consistency.h"

namespace paceline::ps {

/// For K = all present workers, however many there are.
inline constexpr std::int64_t kEverybody = std::numeric_limits<std::int64_t>::max();

class Gathering : public Consistency {
 public:
  struct Manner {
    std::int64_t group;  // K
    bool contributors_wait;
    bool cancels;
  };
  Gathering(int workers, Manner manner);

  bool may_pull(int worker) const override;
  void pulled(int worker) override;
  Admission pushed(int worker, double loss) override;
  void refused(int worker) override;
  bool cancelled(int worker) const override;
  bool cancels() const override { return manner_.cancels; }
  void joined(int worker) override;
  Admission left(int worker) override;
  std::vector<int> members() const override;
  std::vector<std::int64_t> save() const override;
  void load(std::span<const std::int64_t> state) override;

 protected:
  std::int64_t present() const;
  std::int64_t group() const { return manner_.group; }
  void set_group(std::int64_t group) { manner_.group = group; }

 private:
  // `gone` has contributed and left: if it comes back before the update it waits, so that it does not contribute twice.
  enum class Seat : std::int64_t { idle, computing, cancelled, waiting, gone };
  using Seats = std::map<int, Seat>;

  static bool someone_can_contribute(const Seats& seats);
  Admission update();

  Manner manner_;
  Seats seats_;
  int gathered_ = 0;
};

/// K of the settings. Throws ConfigError if there are too few workers for it.
std::int64_t group_of(const ConsistencyConfig& config, int workers);

}  // namespace paceline::ps
