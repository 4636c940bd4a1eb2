// int8, dynamic8, onebit, sign, ternary: bounds of the error, means over chance, and bytes on the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

using testing::Each;

double ratio_of(const std::string& key, const RangeLayout& layout) {
  std::vector<float> values = gradient(layout, 1);
  return 4.0 * static_cast<double>(layout.elements()) / static_cast<double>(encode(*coder(key), layout, values).size());
}

TEST(Quantisers, HaveTheirBytesOnTheWire) {
  const RangeLayout large = one_part(1 << 20);
  EXPECT_EQ(coder("int8")->bound(large), (1 << 20) + 4 * 2048);
  EXPECT_EQ(coder("dynamic8")->bound(large), (1 << 20) + 4 * 2048);
  EXPECT_EQ(coder("onebit")->bound(large), (1 << 17) + 8);
  EXPECT_EQ(coder("sign")->bound(large), (1 << 17) + 4);
  EXPECT_EQ(coder("ternary")->bound(large), (1 << 18) + 4);
  EXPECT_NEAR(ratio_of("int8", large), 3.97, 0.005);
  EXPECT_NEAR(ratio_of("dynamic8", large), 3.97, 0.005);
  EXPECT_NEAR(ratio_of("onebit", large), 32, 0.01);
  EXPECT_NEAR(ratio_of("sign", large), 32, 0.01);
  EXPECT_NEAR(ratio_of("ternary", large), 16, 0.01);
}

/// The mean of what is decoded over many steps with the same values, and its standard error for each value.
struct Average {
  std::vector<double> mean, error;
};

Average average(const std::string& key, const RangeLayout& layout, const std::vector<float>& values, int steps,
                const CompressConfig& config = {}) {
  const auto worker = coder(key, config);
  std::vector<double> sum(values.size()), squares(values.size());
  for (int step = 0; step < steps; ++step) {
    std::vector<float> rest = values;
    const std::vector<float> said = decode(*worker, layout, encode(*worker, layout, rest, {.seed = 5, .step = step}));
    for (std::size_t i = 0; i < said.size(); ++i) sum[i] += said[i], squares[i] += static_cast<double>(said[i]) * said[i];
  }
  Average result{sum, sum};
  for (std::size_t i = 0; i < sum.size(); ++i) {
    result.mean[i] = sum[i] / steps;
    result.error[i] = std::sqrt(std::max(squares[i] / steps - result.mean[i] * result.mean[i], 0.0) / steps);
  }
  return result;
}

void expect_unbiased(const std::string& key, const CompressConfig& config = {}) {
  const RangeLayout layout = one_part(700);
  const std::vector<float> values = gradient(layout, 3, 1);
  const Average found = average(key, layout, values, 4000, config);
  double chi_square = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = (found.mean[i] - values[i]) / std::max(found.error[i], 1e-5);
    EXPECT_LT(std::abs(off), 5.5) << "value " << values[i] << " has mean " << found.mean[i];
    chi_square += off * off;
  }
  EXPECT_NEAR(chi_square / static_cast<double>(values.size()), 1, 0.25) << "the draws of neighbours or steps depend on each other";
}

TEST(Int8, IsUnbiased) { expect_unbiased("int8"); }
TEST(Ternary, IsUnbiasedWithoutClipping) {
  CompressConfig config;
  config.clip_deviations = 0;
  expect_unbiased("ternary", config);
}

TEST(Int8, ErrsByLessThanALevelOfItsBlock) {
  CompressConfig config;
  config.block = 100;
  const RangeLayout layout = one_part(1050);
  const std::vector<float> before = gradient(layout, 4);
  std::vector<float> after = before;
  encode(*coder("int8", config), layout, after);
  for (std::size_t begin = 0; begin < before.size(); begin += 100) {
    float largest = 0;
    for (std::size_t i = begin; i < std::min(begin + 100, before.size()); ++i) largest = std::max(largest, std::abs(before[i]));
    for (std::size_t i = begin; i < std::min(begin + 100, before.size()); ++i) EXPECT_LT(std::abs(after[i]), largest / 127 * 1.0001f);
  }
}

TEST(Int8, RanksStepsAndPlacesDrawApart) {
  const RangeLayout layout = one_part(1000);
  const std::vector<float> values = gradient(layout, 5);
  const auto code = [&](const CodingContext& context) {
    std::vector<float> rest = values;
    return encode(*coder("int8"), layout, rest, context);
  };
  const auto first = code({.seed = 1});
  for (const CodingContext& other : {CodingContext{.seed = 2}, CodingContext{.seed = 1, .rank = 1}, CodingContext{.seed = 1, .step = 1},
                                     CodingContext{.seed = 1, .place = 1}})
    EXPECT_NE(code(other), first);
}

// Half the distance of neighbouring levels, as the formula has it, plus what ends of bins of 9 bits cost.
TEST(Dynamic8, ErrsByAtMostHalfABin) {
  const RangeLayout layout = one_part(512);
  RandomStream stream(1, Purpose::test);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> before(512), after;
    for (float& value : before) value = stream.uniform(-1, 1) * std::pow(10.0f, -8 * stream.uniform());
    before[17] = 1;
    after = before;
    encode(*coder("dynamic8"), layout, after);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double size = std::abs(before[i]);
      const int decade = size == 0 ? 7 : std::min(7, static_cast<int>(std::floor(-std::log10(size))));
      const double half_bin = decade == 7 ? 2.75e-7 : 0.45 * std::pow(10, -decade) / std::pow(2, 6 - decade);
      EXPECT_LE(std::abs(after[i]), std::max(half_bin, 2.75e-7) + 0.003 * size) << before[i];
    }
  }
}

TEST(Dynamic8, TellsSevenDecadesFromZero) {
  std::vector<float> values = {1, 1e-1f, 1e-2f, 1e-3f, 1e-4f, 1e-5f, 1e-6f, -5.5e-7f, 1e-8f};
  const RangeLayout layout = one_part(static_cast<std::int64_t>(values.size()));
  const std::vector<float> said = decode(*coder("dynamic8"), layout, encode(*coder("dynamic8"), layout, values));
  for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(said[i] * std::pow(10, i), 1, 0.46) << i;
  EXPECT_FLOAT_EQ(said[7], -5.5e-7f);
  EXPECT_EQ(said[8], 0);
}

TEST(OneBit, SendsTheMeansOfBothSigns) {
  std::vector<float> values = {1, 3, -1, -2, -6, 0};
  const auto worker = coder("onebit");
  const RangeLayout layout = one_part(6);
  const auto code = encode(*worker, layout, values);
  EXPECT_EQ(code.size(), 9u);
  EXPECT_THAT(decode(*worker, layout, code), testing::ElementsAre(4 / 3.0f, 4 / 3.0f, -3, -3, -3, 4 / 3.0f));
}

TEST(OneBit, TensorsHaveMeansOfTheirOwn) {
  const RangeLayout layout{.parts = {{0, 2, 1, 2}, {4, 2, 1, 2}}, .length = 6};
  std::vector<float> values = {1, -1, 0, 0, 10, -30};
  EXPECT_THAT(decode(*coder("onebit"), layout, encode(*coder("onebit"), layout, values)), testing::ElementsAre(1, -1, 0, 0, 10, -30));
}

TEST(Sign, TheMajorityDecidesInBothDirections) {
  CompressConfig config;
  config.sign_scale = 0.5;
  const auto worker = coder("sign", config);
  const RangeLayout layout = one_part(4);
  std::vector<std::vector<float>> votes = {{1, -2, 3, -1}, {-9, -1, 2, 1}, {2, 7, 1, -3}};
  std::vector<float> mean(4);
  for (auto& vote : votes) worker->decode_add(layout, encode(*worker, layout, vote), 1 / 3.0f, mean.data());
  EXPECT_THAT(decode(*worker, layout, encode(*worker, layout, mean)), testing::ElementsAre(0.5f, -0.5f, 0.5f, -0.5f));
}

TEST(Sign, IsWorthTheMeanMagnitudeByDefault) {
  std::vector<float> values = {1, -3, 2, -2};
  EXPECT_THAT(decode(*coder("sign"), one_part(4), encode(*coder("sign"), one_part(4), values)), testing::ElementsAre(2, -2, 2, -2));
}

TEST(Sign, DrawsAreDecidedByChance) {
  CompressConfig config;
  config.sign_scale = 1;
  const RangeLayout layout = one_part(10000);
  std::vector<float> values(10000);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = -0.0f;
  double sum = 0;
  for (const float said : decode(*coder("sign", config), layout, encode(*coder("sign", config), layout, values))) sum += said;
  EXPECT_LT(std::abs(sum), 5 * 100);  // five deviations
}

TEST(Ternary, ClipsAtDeviationsAndKeepsTheRest) {
  const RangeLayout layout = one_part(4096);
  const std::vector<float> before = gradient(layout, 6, 1);
  std::vector<float> after = before;
  const std::vector<float> said = decode(*coder("ternary"), layout, encode(*coder("ternary"), layout, after));
  float level = 0;
  for (const float value : said) level = std::max(level, value);
  EXPECT_NEAR(level, 2.5, 0.1);  // of normal values with deviation 1
  for (std::size_t i = 0; i < said.size(); ++i) {
    EXPECT_TRUE(said[i] == 0 || std::abs(said[i]) == level);
    EXPECT_TRUE(std::abs(before[i]) <= level || said[i] == std::copysign(level, before[i]));
  }
}

TEST(Ternary, RefusesASignOfAZero) {
  std::vector<float> zeros(16);
  auto code = encode(*coder("ternary"), one_part(16), zeros);
  ASSERT_EQ(code.size(), 4u + 2 + 2);
  code.back() = std::byte{1};
  EXPECT_THROW(decode(*coder("ternary"), one_part(16), code), DataError);
}

TEST(Quantisers, LeaveABlockWithANanAsItIs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* key : {"int8", "dynamic8", "onebit", "sign", "ternary"}) {
    std::vector<float> values = {1, nan, -2};
    const auto worker = coder(key);
    for (const float said : decode(*worker, one_part(3), encode(*worker, one_part(3), values))) EXPECT_TRUE(std::isnan(said)) << key;
    EXPECT_EQ(values[0], 1) << key;
    EXPECT_EQ(values[2], -2) << key;
  }
}

}  // namespace
}  // namespace paceline::compress
