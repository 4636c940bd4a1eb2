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
  const Nanoseconds before = clock.now(), own = process_age(), after = clock.now();
  const pid_t child = ::fork();
  if (child == 0) {  // younger than the time since `before`, but for the tick that its start is rounded down to
    const double age = seconds(process_age());
    ::_exit(age >= 0 && age <= seconds(clock.now() - before) + 0.02 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "a child is as old as it is";
  const double passed = seconds(process_age() - own);
  EXPECT_GE(passed, 0);
  EXPECT_LE(passed, seconds(clock.now() - before));
  EXPECT_GE(passed, seconds(clock.now() - after) - 1) << "the same clock";
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
