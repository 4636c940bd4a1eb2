#include "paceline/base/event_loop.h"

#include <gtest/gtest.h>

#include "paceline/base/random.h"

namespace paceline {
namespace {

std::vector<EventLoop::Actor> drain(EventLoop& loop) {
  std::vector<EventLoop::Actor> order;
  while (loop.next()) order.push_back(loop.advance());
  return order;
}

TEST(EventLoop, GoesByTimeAndTiesByTheOrderOfPlanning) {
  EventLoop loop(4);
  loop.plan(3, Nanoseconds(20)), loop.plan(2, Nanoseconds(10)), loop.plan(0, Nanoseconds(20)), loop.plan(1, Nanoseconds(5));
  EXPECT_EQ(loop.next(), 1u);
  EXPECT_EQ(drain(loop), (std::vector<EventLoop::Actor>{1, 2, 3, 0}));
  EXPECT_EQ(loop.now(), Nanoseconds(20));
  EXPECT_FALSE(loop.next());
}

TEST(EventLoop, PlanningAgainReplacesAndCancellingTakesAway) {
  EventLoop loop(3);
  loop.plan(0, Nanoseconds(10)), loop.plan(1, Nanoseconds(20)), loop.plan(2, Nanoseconds(30));
  loop.plan(0, Nanoseconds(40)), loop.cancel(1), loop.cancel(1);
  EXPECT_EQ(loop.event(1).due, Nanoseconds(20)) << "a checkpoint keeps what was planned last";
  EXPECT_EQ(drain(loop), (std::vector<EventLoop::Actor>{2, 0}));
}

TEST(EventLoop, AgreesWithASortOfThousandsOfEvents) {
  constexpr std::size_t kActors = 3000;
  EventLoop loop(kActors);
  RandomStream stream(1, Purpose::test);
  for (int i = 0; i < 9000; ++i) {
    const std::size_t actor = stream.below(kActors);
    if (stream.below(4) == 0) loop.cancel(actor);
    else loop.plan(actor, Nanoseconds(stream.below(500)));
  }
  std::vector<std::tuple<std::int64_t, std::int64_t, std::size_t>> sorted;
  for (std::size_t i = 0; i < kActors; ++i)
    if (loop.event(i).pending) sorted.emplace_back(loop.event(i).due.count(), loop.event(i).order, i);
  std::ranges::sort(sorted);
  ASSERT_GT(sorted.size(), 1000u);
  std::vector<EventLoop::Actor> expected;
  for (const auto& row : sorted) expected.push_back(std::get<2>(row));
  EXPECT_EQ(drain(loop), expected);
}

TEST(EventLoop, GoesOnFromWhatWasSaved) {
  EventLoop loop(3);
  loop.plan(0, Nanoseconds(10)), loop.plan(1, Nanoseconds(30)), loop.plan(2, Nanoseconds(30));
  loop.advance();
  std::vector<EventLoop::Event> events;
  for (std::size_t i = 0; i < 3; ++i) events.push_back(loop.event(i));
  EventLoop resumed;
  resumed.restore(loop.now(), loop.planned(), events);
  EXPECT_EQ(resumed.now(), Nanoseconds(10));
  EXPECT_EQ(resumed.planned(), 3);
  resumed.plan(0, Nanoseconds(20));  // at 30 too, but planned last
  EXPECT_EQ(drain(resumed), (std::vector<EventLoop::Actor>{1, 2, 0}));
}

TEST(EventLoop, DoesNotGoBack) {
  EventLoop loop(1);
  loop.advance_to(Nanoseconds(5));
  EXPECT_THROW(loop.plan_at(0, Nanoseconds(4)), InternalError);
  EXPECT_THROW(loop.advance(), InternalError);
}

}  // namespace
}  // namespace paceline
