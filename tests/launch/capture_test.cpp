// Programs that are run for what they say.
#include "paceline/launch/capture.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "paceline/base/error.h"

namespace paceline::launch {
namespace {

Captured shell(const std::string& script) { return capture({"sh", "-c", script}); }

TEST(Capture, KeepsTheStreamsApartAndTellsTheEnd) {
  const Captured captured = shell("echo one; echo trouble >&2; echo two; exit 3");
  EXPECT_EQ(captured.out, "one\ntwo\n");
  EXPECT_EQ(captured.err, "trouble\n");
  EXPECT_EQ(captured.exit.code, 3);
  EXPECT_FALSE(captured.exit.good());
}

TEST(Capture, ManyBytesOnBothStreamsBlockNobody) {
  const Captured captured = shell("head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero");
  EXPECT_TRUE(captured.exit.good());
  EXPECT_EQ(captured.out.size(), 1000000u);
  EXPECT_EQ(captured.err.size(), 1000000u);
}

TEST(Capture, WaitsForAProgramThatClosedItsStreams) { EXPECT_EQ(shell("exec >&- 2>&-; sleep 0.2; exit 5").exit.code, 5); }

TEST(Capture, ComplaintIsTheLastLineThatSaysSomething) {
  EXPECT_EQ(shell("echo measuring >&2; echo 'error: no such recipe' >&2; echo >&2; exit 2").complaint(), "no such recipe");
  EXPECT_EQ(shell("exit 4").complaint(), "it exited with code 4");
  EXPECT_EQ(shell("kill -KILL $$").complaint(), "it was killed by signal 9 (SIGKILL)");
}

TEST(Capture, StopEndsTheProgramAndWhatItStarted) {
  std::atomic<bool> stop = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const Captured captured = capture({"sh", "-c", "sleep 600 & sleep 600"}, stop);  // returns once nobody has its streams any more
  later.join();
  EXPECT_EQ(captured.exit.signal, SIGKILL);
}

TEST(Capture, WhatCannotBeRunIsRefused) { EXPECT_THROW(capture({"no-such-program-anywhere"}), ConfigError); }

}  // namespace
}  // namespace paceline::launch
