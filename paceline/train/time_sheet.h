// Where the time of a run goes, by a clock on the wall: every moment belongs to one part of observe::WallTime.
#pragma once

#include <utility>

#include "paceline/base/clock.h"
#include "paceline/observe/event.h"

namespace paceline::train {

/// Of one thread.
class TimeSheet {
 public:
  using Part = double observe::WallTime::*;

  /// What has passed since `began` belongs to `first`, and so does what follows outside of every Entry.
  TimeSheet(const Clock& clock, Nanoseconds began, Part first) : clock_(clock), booked_(began), part_(first) {}

  /// While it lives, time belongs to its part; of nested ones to the innermost.
  class [[nodiscard]] Entry {
   public:
    Entry(TimeSheet& sheet, Part part) : sheet_(sheet), before_(sheet.turn_to(part)) {}
    ~Entry() { sheet_.turn_to(before_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    TimeSheet& sheet_;
    Part before_;
  };

  Entry enter(Part part) { return {*this, part}; }

  /// Time belongs to `part` from now on. Returns whose it was.
  Part turn_to(Part part) {
    const Nanoseconds now = clock_.now();
    spent_.*part_ += seconds(now - booked_);
    booked_ = now;
    return std::exchange(part_, part);
  }

  observe::WallTime read() {
    turn_to(part_);
    return spent_;
  }

 private:
  const Clock& clock_;
  observe::WallTime spent_;
  Nanoseconds booked_;
  Part part_;
};

}  // namespace paceline::train
