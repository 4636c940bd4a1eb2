// The ranks that measure: those of a job that a launcher started, or threads of this process that act as workers, each with its share of
// the cores. They measure at the same time, so that shared resources (memory, caches, the clock's boost) are shared as in a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/world.h"

namespace paceline::measure {

/// Called with the name of what is being measured, for the progress line.
using Say = std::function<void(const std::string&)>;

/// One measuring rank. Every rank makes the same calls in the same order.
struct Rank {
  comm::Communicator& comm;
  int threads = 1;
  Say say = {};  // rank 0's

  bool leads() const { return comm.rank() == 0; }
  void tell(const std::string& what) const {
    if (say) say(what);
  }
  /// Waits until all ranks have arrived.
  void meet() const;
  /// The mean over all ranks, and rank 0's value; the result is the same on all ranks.
  std::vector<double> mean(std::vector<double> values) const;
  double mean(double value) const { return mean(std::vector<double>{value}).front(); }
  /// For each value, the maximum over all ranks.
  std::vector<double> largest(std::vector<double> values) const;
  std::int64_t agreed(std::int64_t value) const;
};

/// Runs the ranks of this process: `workers` threads if no launcher started it as one of several, otherwise this process as one rank.
/// Rethrows what a rank throws.
void play(const comm::World& world, int workers, const comm::CommConfig& config, const Say& say, const std::function<void(Rank&)>& body);

}  // namespace paceline::measure
