// The standardiser against mean and deviation as textbooks define them.
#include "paceline/ps/predictors/standardiser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "paceline/base/random.h"

namespace paceline::ps {
namespace {

TEST(Standardiser, TakesMeanAndDeviationOfWhatCame) {
  RandomStream random(1, Purpose::test);
  Standardiser standard;
  std::vector<double> values;
  for (int index = 0; index < 500; ++index) {
    values.push_back(3 + 0.5 * random.normal());
    double mean = 0, squares = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (const double value : values) squares += std::pow(value - mean, 2) / static_cast<double>(values.size());
    const double expected = values.size() == 1 ? 0 : (values.back() - mean) / std::sqrt(squares);
    EXPECT_NEAR(standard.take(values.back()), expected, 1e-3) << "value " << index;
    EXPECT_NEAR(standard.restore(2, 3), 3 * mean + 2 * std::sqrt(squares), 1e-3 * (1 + 3 * mean)) << "value " << index;
  }
}

TEST(Standardiser, ForgetsWhatWasAThousandValuesAgo) {
  Standardiser standard;
  for (int index = 0; index < 1000; ++index) standard.take(index % 2 == 0 ? 100 : 102);
  for (int index = 0; index < 20'000; ++index) standard.take(index % 2 == 0 ? 1 : 3);
  EXPECT_NEAR(standard.restore(0), 2, 0.01);
  EXPECT_NEAR(standard.take(3), 1, 0.01);
}

TEST(Standardiser, LeavesOutWhatIsNotFinite) {
  Standardiser standard;
  EXPECT_EQ(standard.take(NAN), 0);
  EXPECT_TRUE(standard.empty());
  EXPECT_EQ(standard.take(5), 0);  // the first value, and a constant series
  EXPECT_EQ(standard.take(INFINITY), 0);
  EXPECT_EQ(standard.restore(0), 5);
}

}  // namespace
}  // namespace paceline::ps
