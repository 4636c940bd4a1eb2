#include "paceline/base/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace paceline {
namespace {

TEST(Finite, FindsEveryValueThatIsNot) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t count : {1, 63, 64, 65, 4097, 65'535, 65'536, 65'537, 200'001}) {
    std::vector<float> values(count, std::numeric_limits<float>::max());
    values[count / 2] = -std::numeric_limits<float>::denorm_min();
    EXPECT_TRUE(all_finite(values.data(), std::ssize(values)));
    for (const std::size_t at : {std::size_t{0}, count / 2, count - 1})
      for (const float bad : {inf, -inf, nan, -nan}) {
        const float good = std::exchange(values[at], bad);
        EXPECT_FALSE(all_finite(values.data(), std::ssize(values))) << bad << " at " << at << " of " << count;
        values[at] = good;
      }
  }
  EXPECT_TRUE(all_finite(nullptr, 0));
}

}  // namespace
}  // namespace paceline
