#include "paceline/observe/event.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace paceline::observe {
namespace {

struct Counter final : Listener {
  explicit Counter(int& seen) : count(seen) {}
  void on(const Event&) override { ++count; }
  int& count;
};

struct Broken final : Listener {
  explicit Broken(int& seen) : count(seen) {}
  void on(const Event&) override {
    ++count;
    throw std::runtime_error("the disk is full");
  }
  int& count;
};

TEST(Bus, HandsEveryEventOnFromManyThreads) {
  Bus bus;
  int first = 0, second = 0;
  bus.add(std::make_unique<Counter>(first));
  bus.add(std::make_unique<Counter>(second));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) bus.emit(StepDone{});
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(first, 2000);
  EXPECT_EQ(second, 2000);
}

TEST(Bus, AListenerThatThrowsIsDroppedAndTheOthersGoOn) {
  Bus bus;
  int broken = 0, sound = 0;
  bus.add(std::make_unique<Broken>(broken));
  bus.add(std::make_unique<Counter>(sound));
  testing::internal::CaptureStderr();
  bus.emit(StepDone{});
  bus.emit(StepDone{});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the disk is full; the run continues"), std::string::npos);
  EXPECT_EQ(broken, 1);
  EXPECT_EQ(sound, 2);
}

TEST(Bus, SpansAreWantedOnlyWhenAskedFor) {
  Bus bus;
  EXPECT_FALSE(bus.wants_spans());
  bus.want_spans();
  EXPECT_TRUE(bus.wants_spans());
}

}  // namespace
}  // namespace paceline::observe
