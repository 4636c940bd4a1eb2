#include "paceline/base/process_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace paceline {
namespace {

TEST(ProcessState, KnowsItsParent) {
  const auto own = process_state(::getpid());
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->runs());
  EXPECT_EQ(own->parent, ::getppid());
  EXPECT_FALSE(process_state(0));
  EXPECT_FALSE(process_state(1 << 30));
}

TEST(ProcessState, KnowsHowOldThisProcessIs) {
  const SteadyClock clock;
  const Nanoseconds read = clock.now(), age = process_age();
  EXPECT_GE(age, Nanoseconds(0));
  ::usleep(30'000);
  const double passed = seconds(process_age() - age), by_clock = seconds(clock.now() - read);
  EXPECT_GE(passed, 0.02);
  EXPECT_LE(passed, by_clock + 0.01);
}

TEST(ProcessState, TellsStoppedFromDead) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  const auto stopped = process_state(child);
  ASSERT_TRUE(stopped);
  EXPECT_TRUE(stopped->is_stopped());
  EXPECT_FALSE(stopped->runs());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_state(child));
}

}  // namespace
}  // namespace paceline
