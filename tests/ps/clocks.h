// Clocks for hosts under test.
#pragma once

#include <atomic>
#include <thread>

#include "paceline/base/clock.h"

namespace paceline::ps {

/// Real time, for tests that do not play it.
inline const Clock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

/// Time that a test moves, read by any thread.
class ManualClock final : public Clock {
 public:
  Nanoseconds now() const override {
    ++looks_;
    return Nanoseconds(now_.load());
  }
  void advance(Nanoseconds step) { now_ += step.count(); }
  /// Waits until others have looked at the clock so many times more. False where nobody does for ten seconds.
  bool await_looks(int more) const {
    const std::int64_t enough = looks_ + more;
    for (int naps = 0; looks_ < enough && naps < 10'000; ++naps) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return looks_ >= enough;
  }

 private:
  std::atomic<std::int64_t> now_ = 0;
  mutable std::atomic<std::int64_t> looks_ = 0;
};

}  // namespace paceline::ps
