// Cores in parts: every core in one of them, and the same part however often a thread is kept to it.
#include "paceline/base/affinity.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "paceline/base/error.h"

namespace paceline {
namespace {

std::vector<int> cores_from(int first, int count) {
  std::vector<int> cores(static_cast<std::size_t>(count));
  std::iota(cores.begin(), cores.end(), first);
  return cores;
}

TEST(Affinity, PartsCoverAllCoresOnceAndDifferByOneAtMost) {
  for (const int count : {1, 2, 5, 16, 64, 96})
    for (const int parts : {1, 2, 3, 5, 7, 16}) {
      const std::vector<int> cores = cores_from(3, count);
      std::vector<int> covered;
      for (int index = 0; index < parts; ++index) {
        const std::vector<int> part = part_of(cores, index, parts);
        covered.insert(covered.end(), part.begin(), part.end());
        EXPECT_LE(std::ssize(part), (count + parts - 1) / parts) << count << " in " << parts;
        EXPECT_GE(std::ssize(part), count / parts) << count << " in " << parts;
      }
      EXPECT_EQ(covered, count < parts ? std::vector<int>() : cores) << count << " in " << parts;
    }
  EXPECT_EQ(part_of({0, 1, 8, 9}, 1, 2), (std::vector<int>{8, 9}));
}

TEST(Affinity, APartIsGivenBackSoThatTheNextIsOfTheWhole) {
  const std::vector<int> all = allowed_cores();
  if (std::ssize(all) < 2) GTEST_SKIP() << "one core has no parts";
  for (const int index : {0, 1, 0}) {
    const OwnCores cores(index, 2);
    EXPECT_EQ(allowed_cores(), part_of(all, index, 2));
    std::thread([&] { EXPECT_EQ(allowed_cores(), part_of(all, index, 2)) << "a thread has its starter's"; }).join();
    const OwnCores none(0, 1 + static_cast<int>(all.size()));
    EXPECT_EQ(allowed_cores(), part_of(all, index, 2)) << "too many parts change nothing";
  }
  EXPECT_EQ(allowed_cores(), all);
}

TEST(Affinity, AProcessCountsTheCoresThatItWasLeft) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which comes this way too, and no copy of this one
  const std::vector<int> all = allowed_cores();
  EXPECT_EQ(usable_cores(), std::ssize(all));
  const OwnCores half(1, 2);
  EXPECT_EQ(usable_cores(), std::ssize(all)) << "a part is not the whole";
  EXPECT_EXIT(std::_Exit(usable_cores()), testing::ExitedWithCode(static_cast<int>(allowed_cores().size())), "");
}

TEST(Affinity, ThreadsAreOpenMpsWordElseTheCores) {
  EXPECT_EQ(usual_threads(12, nullptr), 12);
  EXPECT_EQ(usual_threads(0, nullptr), 1);
  EXPECT_EQ(usual_threads(12, "3"), 3);
  EXPECT_EQ(usual_threads(2, "3"), 3);
  EXPECT_EQ(usual_threads(12, "4,2"), 4) << "the outermost level's";
  for (const char* nonsense : {"", "many", "0", "-2"}) EXPECT_EQ(usual_threads(12, nonsense), 12) << nonsense;
  EXPECT_THROW(usual_threads(12, "1000000"), ConfigError);
}

}  // namespace
}  // namespace paceline
