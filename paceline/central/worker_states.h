// What workers of other processes keep for themselves (ps.optimizer=worker, residuals of compression), gathered for a checkpoint: while
// nothing is in flight, every connected worker is asked for it when it next requests work.
//
// For a worker that is not connected the last state is kept, so that it gets it back when the run is resumed.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/step/state.h"

namespace paceline::central {

class WorkerStates {
 public:
  // ---- for the threads that serve workers
  bool wanted(int worker) const;
  /// DataError if the bytes are no such state.
  void keep(int worker, std::string_view packed);

  /// Asks the workers that are `here` (connected), and waits until each has answered or left. `look` is called from time to time and throws
  /// if something went wrong meanwhile. PeerError if a worker does not answer within `patience`.
  void gather(const std::function<std::vector<int>()>& here, const std::function<void()>& look, const Clock& clock, Nanoseconds patience);

  void save(std::vector<step::NamedTensor>& into) const;
  void load(std::span<const step::NamedTensor> state, int workers);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> asked_;
  std::map<int, std::vector<step::NamedTensor>> kept_;
};

}  // namespace paceline::central
