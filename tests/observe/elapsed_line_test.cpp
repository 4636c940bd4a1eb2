#include "paceline/observe/elapsed_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <ostream>

namespace paceline::observe {
namespace {

using testing::EndsWith;

constexpr Nanoseconds kNoPatience{1};

/// What a line's thread writes, and a wait for some of it.
class Written final : public std::streambuf {
 public:
  bool has(const std::string& part) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return text_.find(part) != std::string::npos; });
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 protected:
  int_type overflow(int_type letter) override {
    const char written = traits_type::to_char_type(letter);
    return xsputn(&written, 1), letter;
  }
  std::streamsize xsputn(const char* from, std::streamsize count) override {
    {
      const std::lock_guard lock(mutex_);
      text_.append(from, static_cast<std::size_t>(count));
    }
    changed_.notify_all();
    return count;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
};

class ElapsedLineTest : public testing::Test {
 protected:
  Terminal terminal(bool live) {
    Terminal made;
    made.out = &out_;
    made.live = live;
    return made;
  }

  Written written_;
  std::ostream out_{&written_};
};

TEST_F(ElapsedLineTest, SaysNothingOfWhatIsSoonDone) {
  for (const bool live : {true, false}) const ElapsedLine line("searching", terminal(live), std::chrono::hours(1));
  EXPECT_EQ(written_.text(), "");
}

TEST_F(ElapsedLineTest, CountsSecondsAndIsGoneAtTheEnd) {
  {
    const ElapsedLine line("searching", terminal(true), kNoPatience);
    EXPECT_TRUE(written_.has("searching: 0 s")) << written_.text();
  }
  EXPECT_THAT(written_.text(), EndsWith("\r\x1b[K"));
}

TEST_F(ElapsedLineTest, TellsHowFarItIs) {
  ElapsedLine line("searching", terminal(true), kNoPatience);
  line.say("1 of 3 plans");
  line.say("2 of 3 plans");
  EXPECT_TRUE(written_.has("searching, 2 of 3 plans: ")) << written_.text();
}

TEST_F(ElapsedLineTest, IsOneLineWhereNothingCanBeDrawnOver) {
  {
    const ElapsedLine line("searching", terminal(false), kNoPatience);
    EXPECT_TRUE(written_.has("\n")) << written_.text();
  }
  EXPECT_EQ(written_.text(), "searching\n");
}

TEST(ElapsedLine, GivesItselfToWhatItWaitsFor) {
  EXPECT_EQ(patiently("searching", [] { return 3; }), 3);
  EXPECT_EQ(patiently("searching", [](ElapsedLine& line) { return line.say("1 of 3 plans"), 4; }), 4);
}

}  // namespace
}  // namespace paceline::observe
