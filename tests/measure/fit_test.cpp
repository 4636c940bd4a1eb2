// The costs behind measured times, from times that are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/measure/device_speed.h"
#include "paceline/measure/links.h"

namespace paceline::measure {
namespace {

TEST(FitRing, FindsTheCostsThatMadeTheTimes) {
  constexpr double kLatency = 3e-6, kBandwidth = 4e9;
  for (const int ranks : {2, 3, 8}) {
    std::map<std::int64_t, double> seconds;
    const auto time_of = [&](std::int64_t bytes) { return (ranks - 1) * (kLatency + static_cast<double>(bytes) / ranks / kBandwidth); };
    for (std::int64_t bytes = 24; bytes <= 24 << 20; bytes *= 8) seconds[bytes] = time_of(bytes);
    const MessageCosts fit = fit_ring(ranks, seconds);
    EXPECT_NEAR(fit.latency_s, kLatency, 0.01 * kLatency) << ranks;
    EXPECT_NEAR(fit.bytes_per_s, kBandwidth, 0.01 * kBandwidth) << ranks;
    seconds.begin()->second *= 1.5;  // one of eight
    EXPECT_NEAR(fit_ring(ranks, seconds).bytes_per_s, kBandwidth, 0.01 * kBandwidth) << "the longest message decides";
    EXPECT_GT(fit_ring(ranks, seconds).latency_s, kLatency * 1.02);
  }
}

TEST(FitRing, IsAboveZeroWhateverTheTimes) {
  for (const std::map<std::int64_t, double>& seconds :
       {std::map<std::int64_t, double>{{1 << 10, 1e-6}}, {{1 << 10, 1e-6}, {1 << 20, 1e-6}}, {{1 << 10, 1e-3}, {1 << 20, 1e-6}}}) {
    const MessageCosts fit = fit_ring(2, seconds);
    EXPECT_GT(fit.latency_s, 0);
    EXPECT_GT(fit.bytes_per_s, 0);
  }
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
