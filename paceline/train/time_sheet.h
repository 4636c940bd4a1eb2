// Where the time of a run goes, in wall-clock seconds: every moment belongs to one part of observe::WallTime.
#pragma once

#include <utility>

#include "paceline/base/clock.h"
#include "paceline/observe/event.h"

namespace paceline::train {

/// For one thread.
class TimeSheet {
 public:
  using Part = double observe::WallTime::*;

  /// The time since `began` belongs to `first`, and so does all time outside of any Entry.
  TimeSheet(const Clock& clock, Nanoseconds began, Part first) : clock_(clock), booked_(began), part_(first) {}

  /// While it exists, time belongs to its part; if nested, to the innermost.
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

  /// From now on, time belongs to `part`. Returns the previous part.
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
