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
  /// Returns once others have looked at the clock so many times more.
  void await_looks(int more) const {
    for (const std::int64_t enough = looks_ + more; looks_ < enough;) std::this_thread::yield();
  }

 private:
  std::atomic<std::int64_t> now_ = 0;
  mutable std::atomic<std::int64_t> looks_ = 0;
};

}  // namespace paceline::ps
