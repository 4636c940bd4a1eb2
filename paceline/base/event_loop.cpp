#include "paceline/base/event_loop.h"

#include <utility>

#include "paceline/base/error.h"

namespace paceline {

EventLoop::Actor EventLoop::add(std::size_t actors) {
  const Actor first = events_.size();
  events_.resize(first + actors), places_.resize(first + actors);
  return first;
}

void EventLoop::plan_at(Actor actor, Nanoseconds due) {
  ensure(due >= now(), "an event is not planned for the past");
  Event& event = events_[actor];
  const bool was_pending = event.pending;
  event = {due, planned_++, true};
  if (!was_pending) {
    heap_.push_back(actor);
    places_[actor] = heap_.size() - 1;
  }
  rise(places_[actor]);
  sink(places_[actor]);
}

void EventLoop::cancel(Actor actor) {
  if (events_[actor].pending) remove(places_[actor]);
}

std::optional<EventLoop::Actor> EventLoop::next() const {
  if (heap_.empty()) return std::nullopt;
  return heap_.front();
}

EventLoop::Actor EventLoop::advance() {
  ensure(!heap_.empty(), "some event is planned when the clock is to move on");
  const Actor actor = heap_.front();
  clock_.advance_to(events_[actor].due);
  remove(0);
  return actor;
}

void EventLoop::restore(Nanoseconds now, std::int64_t planned, std::vector<Event> events) {
  clock_ = VirtualClock();
  clock_.advance_to(now);
  planned_ = planned, events_ = std::move(events), places_.assign(events_.size(), 0);
  heap_.clear();
  for (Actor actor = 0; actor < events_.size(); ++actor) {
    if (!events_[actor].pending) continue;
    heap_.push_back(actor);
    places_[actor] = heap_.size() - 1;
    rise(places_[actor]);
  }
}

bool EventLoop::before(Actor a, Actor b) const {
  return std::pair(events_[a].due, events_[a].order) < std::pair(events_[b].due, events_[b].order);
}

void EventLoop::put(std::size_t place, Actor actor) { heap_[place] = actor, places_[actor] = place; }

void EventLoop::rise(std::size_t place) {
  const Actor actor = heap_[place];
  for (; place > 0 && before(actor, heap_[(place - 1) / 2]); place = (place - 1) / 2) put(place, heap_[(place - 1) / 2]);
  put(place, actor);
}

void EventLoop::sink(std::size_t place) {
  const Actor actor = heap_[place];
  for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
    if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
    if (!before(heap_[child], actor)) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, actor);
}

void EventLoop::remove(std::size_t place) {
  events_[heap_[place]].pending = false;
  const Actor last = heap_.back();
  heap_.pop_back();
  if (place == heap_.size()) return;
  put(place, last);
  rise(place);
  sink(places_[last]);
}

}  // namespace paceline
