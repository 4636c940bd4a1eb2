// The costs behind measured times, from times that are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/measure/device.h"
#include "paceline/measure/links.h"
#include "paceline/measure/squares.h"

namespace paceline::measure {
namespace {

TEST(FitRing, FindsTheCostsThatMadeTheTimes) {
  constexpr double kLatency = 3e-6, kBandwidth = 4e9;
  for (const int ranks : {2, 3, 8}) {
    std::map<std::int64_t, double> seconds;
    for (std::int64_t bytes = 24 << 10; bytes <= 24 << 20; bytes *= 8)
      seconds[bytes] = (ranks - 1) * (kLatency + static_cast<double>(bytes) / ranks / kBandwidth);
    const auto fit = fit_ring(ranks, seconds);
    ASSERT_TRUE(fit) << ranks;
    EXPECT_NEAR(fit->latency_s, kLatency, 1e-3 * kLatency) << ranks;
    EXPECT_NEAR(fit->bytes_per_s, kBandwidth, 1e-3 * kBandwidth) << ranks;
    EXPECT_LT(fit->error, 1e-3);
    seconds.rbegin()->second *= 2;
    EXPECT_GT(fit_ring(ranks, seconds)->error, 0.01) << "no straight line";
  }
}

TEST(FitRing, GivesUpWhereNothingCanBeTold) {
  EXPECT_FALSE(fit_ring(2, {{1 << 10, 1e-6}})) << "one size";
  EXPECT_FALSE(fit_ring(2, {{1 << 10, 1e-6}, {1 << 20, 1e-6}})) << "bytes cost nothing";
}

TEST(Squares, StayAboveZero) {
  Squares squares;
  for (const double bytes : {1.0, 2.0, 3.0}) squares.add(1, bytes, 5 - bytes);  // falls with the bytes
  const auto answer = squares.solve();
  ASSERT_TRUE(answer);
  EXPECT_DOUBLE_EQ(answer->alpha, 3);
  EXPECT_EQ(answer->beta, 0);
}

TEST(SpeedOf, IsTheFastestAndEachShareOfIt) {
  const perf::Speed speed = speed_of({{1e6, 2e9}, {1e9, 8e9}}, {{1e7, 1e10}, {1e8, 1e6}});
  EXPECT_EQ(speed.flops, (perf::Quantity{1e10, perf::Source::measured}));
  EXPECT_DOUBLE_EQ(speed.products.at(1e6), 0.2);
  EXPECT_DOUBLE_EQ(speed.products.at(1e9), 0.8);
  EXPECT_DOUBLE_EQ(speed.convolutions.at(1e7), 1);
  EXPECT_DOUBLE_EQ(speed.convolutions.at(1e8), 0.001) << "never nothing, which no file could say";
}

}  // namespace
}  // namespace paceline::measure
