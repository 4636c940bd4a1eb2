// Who measures: the ranks of a job that a launcher started, or threads of this process that stand for workers, each with its share of the
// cores. They measure at the same time, so that what they share (memory, caches, the clock's boost) is shared as in a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/world.h"

namespace paceline::measure {

/// Called with what is being measured, for the progress line.
using Say = std::function<void(const std::string&)>;

/// One of those who measure. Every rank makes the same calls in the same order.
struct Rank {
  comm::Communicator& comm;
  int threads = 1;
  Say say = {};  // rank 0's

  bool leads() const { return comm.rank() == 0; }
  void tell(const std::string& what) const {
    if (say) say(what);
  }
  /// Waits until all have come.
  void meet() const;
  /// The mean over all ranks, and what rank 0 has; the same on all.
  std::vector<double> mean(std::vector<double> values) const;
  double mean(double value) const { return mean(std::vector<double>{value}).front(); }
  /// Of each value the largest that any rank has.
  std::vector<double> largest(std::vector<double> values) const;
  std::int64_t agreed(std::int64_t value) const;
};

/// Plays the ranks of this process: `workers` threads where nobody launched it as one of several, else this one alone. What a rank throws
/// is thrown here.
void play(const comm::World& world, int workers, const comm::CommConfig& config, const Say& say, const std::function<void(Rank&)>& body);

}  // namespace paceline::measure
