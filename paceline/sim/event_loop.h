// Events in the order of their time, on a clock that jumps from one to the next. The simulator and the parameter server's virtual executor
// both run on it.
//
// An event belongs to an actor (a worker, a lane of one, a transfer), which has at most one: what it does next. Planning again replaces it,
// as fair sharing of links needs it. Ties go to the event that was planned first, so that a run is a function of what was planned.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "paceline/base/clock.h"

namespace paceline::sim {

class EventLoop {
 public:
  using Actor = std::size_t;

  /// The last event that was planned for an actor; `order` counts all plans.
  struct Event {
    Nanoseconds due{0};
    std::int64_t order = 0;
    bool pending = false;
  };

  explicit EventLoop(std::size_t actors = 0) { add(actors); }

  /// Further actors; the first of them.
  Actor add(std::size_t actors = 1);
  std::size_t actors() const { return events_.size(); }

  Nanoseconds now() const { return clock_.now(); }
  const Event& event(Actor actor) const { return events_[actor]; }
  std::int64_t planned() const { return planned_; }

  void plan(Actor actor, Nanoseconds after) { plan_at(actor, now() + after); }
  /// Not before now.
  void plan_at(Actor actor, Nanoseconds due);
  /// Cancels its event, if there is one.
  void cancel(Actor actor);

  /// Whose event comes next.
  std::optional<Actor> next() const;
  /// Moves the clock to the next event, which is then over. InternalError if there is none.
  Actor advance();
  /// Moves the clock past no event: for whoever has an order of its own.
  void advance_to(Nanoseconds time) { clock_.advance_to(time); }

  /// As a checkpoint has them: the clock, the number of plans so far, each actor's event.
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
  std::vector<Actor> heap_;          // those that are pending, the next one first
  std::vector<std::size_t> places_;  // by actor: where it is in the heap
};

}  // namespace paceline::sim
