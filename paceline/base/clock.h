// Clocks. Code that waits or measures takes a Clock, so that a test or a virtual executor can control time.
#pragma once

#include <chrono>

#include "paceline/base/error.h"

namespace paceline {

using Nanoseconds = std::chrono::nanoseconds;

inline double seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanoseconds now() const = 0;  ///< since an arbitrary start; never goes back
};

class SteadyClock final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

/// A clock that stands still until it is set.
class VirtualClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance_to(Nanoseconds time) {
    ensure(time >= now_, "a virtual clock does not go back");
    now_ = time;
  }
  void advance(Nanoseconds step) { advance_to(now_ + step); }

 private:
  Nanoseconds now_{0};
};

}  // namespace paceline
