// How single calls are timed, by a clock that moves when somebody looks at it and when work is done.
#include "paceline/measure/call_timer.h"

#include <gtest/gtest.h>

#include "paceline/comm/engine.h"

namespace paceline::measure {
namespace {

class WorkClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void work(std::int64_t milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }

 private:
  Nanoseconds now_{0};
};

TEST(AfterComputing, TakesTheMeanOfTheMiddleHalf) {
  // Six fast calls, three with a stall, and three that something else disturbed; the first one does not count.
  const std::int64_t calls[] = {500, 20, 20, 20, 20, 20, 20, 28, 28, 36, 900, 900, 900};
  const auto comm = comm::local_group(1, {});
  const Rank rank{.comm = *comm.front()};
  WorkClock clock;
  const CallTimer timer{.rank = rank, .device = c10::Device(c10::kCPU), .clock = clock, .seconds = 0.05};
  std::size_t call = 0;
  std::int64_t computed = 0;
  const double seconds = timer.after_computing([&] { clock.work(7), ++computed; }, [&] { clock.work(calls[call++]); });
  EXPECT_EQ(call, std::size(calls));
  EXPECT_EQ(computed, 3 * 13) << "20 ms before every call, in pieces of 7";
  EXPECT_DOUBLE_EQ(seconds, (20 + 20 + 20 + 28 + 28 + 36) / 6.0 / 1e3);
}

TEST(AfterComputing, LastsUntilTheLastRankIsDone) {
  std::vector<double> seconds(3);
  play({}, 3, {}, {}, [&](Rank& rank) {
    const auto own = static_cast<std::size_t>(rank.comm.rank());
    WorkClock clock;
    const CallTimer timer{.rank = rank, .device = c10::Device(c10::kCPU), .clock = clock, .seconds = 0};
    seconds[own] = timer.after_computing([&] { clock.work(5); }, [&] { clock.work(rank.comm.rank() == 1 ? 40 : 30); });
  });
  for (const double each : seconds) EXPECT_DOUBLE_EQ(each, 0.04);
}

}  // namespace
}  // namespace paceline::measure
