// Events in the order of their time, on a clock that jumps from one to the next. The simulator and the parameter server's virtual executor
// both run on it.
//
// An event belongs to an actor (a worker, a lane of one, a transfer), which has at most one pending event: what it does next. Scheduling
// another one replaces it, which fair sharing of links needs. Ties go to the event that was scheduled first, so the order is deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paceline/base/clock.h"

namespace paceline {

class EventLoop {
 public:
  using Actor = std::size_t;

  /// The last event that was scheduled for an actor; `order` counts all scheduled events.
  struct Event {
    Nanoseconds due{0};
    std::int64_t order = 0;
    bool pending = false;
  };

  explicit EventLoop(std::size_t actors = 0) { add(actors); }

  /// Adds actors; returns the first one.
  Actor add(std::size_t actors = 1);
  std::size_t actors() const { return events_.size(); }

  Nanoseconds now() const { return clock_.now(); }
  const Event& event(Actor actor) const { return events_[actor]; }
  std::int64_t planned() const { return planned_; }

  void plan(Actor actor, Nanoseconds after) { plan_at(actor, now() + after); }
  /// `due` must not be in the past.
  void plan_at(Actor actor, Nanoseconds due);
  /// Cancels its event, if there is one.
  void cancel(Actor actor);

  /// The actor whose event comes next.
  std::optional<Actor> next() const;
  /// Advances the clock to the next event, which is then over. InternalError if there is none.
  Actor advance();
  /// Advances the clock, but past no event: for callers with an order of their own.
  void advance_to(Nanoseconds time) { clock_.advance_to(time); }

  /// The state for a checkpoint: the clock, the number of scheduled events so far, each actor's event.
  void restore(Nanoseconds now, std::int64_t planned, std::vector<Event> events);

 private:
  bool before(Actor a, Actor b) const;
  void rise(std::size_t place);
  void sink(std::size_t place);
  void put(std::size_t place, Actor actor);
  void remove(std::size_t place);

  VirtualClock clock_;
  std::int64_t planned_ = 0;
  std::vector<Event> events_;        // by actor
  std::vector<Actor> heap_;          // those with a pending event, the next one first
  std::vector<std::size_t> places_;  // by actor: where it is in the heap
};

}  // namespace paceline
