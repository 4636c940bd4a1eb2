// threshold, topk, dgc: which values are sent, and which codes are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "paceline/compress/sparse.h"
#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CompressConfig with_density(double density) {
  CompressConfig config;
  config.density = density;
  return config;
}

/// What topk must send: everything sorted by magnitude, then by place.
std::vector<float> largest(const RangeLayout& layout, const std::vector<float>& values, std::int64_t k) {
  std::vector<std::int64_t> places;
  for (const Part& part : layout.parts)
    for (std::int64_t i = 0; i < part.count; ++i) places.push_back(part.offset + i);
  std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
  std::vector<float> said(values.size());
  for (std::int64_t i = 0; i < k; ++i) said[places[i]] = values[places[i]];
  return said;
}

TEST(TopK, SendsExactlyTheLargest) {
  const RangeLayout layout = odd_layout();
  for (const double density : {1e-9, 0.001, 0.01, 0.1, 0.25, 0.9, 1.0}) {
    const auto worker = coder("topk", with_density(density));
    const auto k = static_cast<std::int64_t>(std::ceil(density * static_cast<double>(layout.elements())));
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const std::vector<float> before = gradient(layout, seed);
      std::vector<float> after = before;
      const auto code = encode(*worker, layout, after, {.seed = seed});
      EXPECT_EQ(static_cast<std::int64_t>(code.size()), 8 * k);
      const std::vector<float> said = decode(*worker, layout, code);
      EXPECT_EQ(said, largest(layout, before, k)) << density;
      for (std::size_t i = 0; i < said.size(); ++i) EXPECT_EQ(after[i], said[i] == 0 ? before[i] : 0);
    }
  }
}

TEST(TopK, SendsExactlyTheLargestOfManyFromASample) {
  const RangeLayout layout = one_part(300000);
  std::vector<float> sorted = gradient(layout, 1);  // the worst for samples by stretches, and then one that they miss
  std::sort(sorted.begin(), sorted.end());
  std::vector<float> spike(300000, 1e-3f);
  std::fill(spike.begin() + 1000, spike.begin() + 4500, 1.0f);
  const auto worker = coder("topk");
  for (const auto& before : {sorted, spike, gradient(layout, 2), std::vector<float>(300000)}) {
    std::vector<float> after = before;
    EXPECT_EQ(decode(*worker, layout, encode(*worker, layout, after)), largest(layout, before, 3000));
  }
}

TEST(TopK, OfEqualValuesTheFirstGo) {
  std::vector<float> values = {1, -1, 2, 1, -1, 1};
  const auto worker = coder("topk", with_density(0.5));
  EXPECT_THAT(decode(*worker, one_part(6), encode(*worker, one_part(6), values)), ElementsAre(1, -1, 2, 0, 0, 0));
  EXPECT_THAT(values, ElementsAre(0, 0, 0, 1, -1, 1));
}

TEST(TopK, SendsNanFirst) {
  std::vector<float> values = {1, 5, std::nanf(""), 3};
  const auto worker = coder("topk", with_density(0.25));
  EXPECT_TRUE(std::isnan(decode(*worker, one_part(4), encode(*worker, one_part(4), values))[2]));
}

TEST(TopK, RefusesPlacesThatHoldNoParameter) {
  const RangeLayout layout{.parts = {{1, 3, 1, 3}, {6, 4, 1, 4}}, .length = 12};
  const auto worker = coder("topk", with_density(1));
  const auto decoded = [&](std::vector<std::uint32_t> places) {
    std::vector<std::byte> code(8 * places.size());
    std::memcpy(code.data(), places.data(), 4 * places.size());
    return decode(*worker, layout, code);
  };
  EXPECT_NO_THROW(decoded({1, 3, 6, 9}));
  for (const auto& places : std::vector<std::vector<std::uint32_t>>{{0}, {4}, {5}, {10}, {12}, {0xffffffffu}, {2, 2}, {3, 1}})
    EXPECT_THAT([&] { decoded(places); }, testing::ThrowsMessage<DataError>(HasSubstr("out of order or holds no parameter")));
}

TEST(TopK, CountsTheKthLargest) {
  RandomStream stream(1, Purpose::test);
  std::vector<std::uint32_t> sizes(1000);
  for (auto& size : sizes) size = stream.next_u32() >> (1 + stream.below(20));
  std::vector<std::uint32_t> sorted = sizes;
  std::sort(sorted.rbegin(), sorted.rend());
  for (const std::int64_t k : {1, 2, 500, 999, 1000}) EXPECT_EQ(kth_largest(sizes, k), sorted[static_cast<std::size_t>(k - 1)]);
}

TEST(Dgc, DensityFallsGeometrically) {
  const RangeLayout layout = one_part(100000);
  CompressConfig config = with_density(0.001);
  config.warmup_epochs = 5;
  const auto worker = coder("dgc", config);
  const auto sent = [&](double epoch) {
    std::vector<float> values = gradient(layout, 1);
    return encode(*worker, layout, values, {.epoch = epoch}).size() / 8;
  };
  EXPECT_EQ(sent(0), 25000u);
  EXPECT_EQ(sent(0.9), 25000u);
  EXPECT_NEAR(static_cast<double>(sent(1)), 6287, 2);
  EXPECT_NEAR(static_cast<double>(sent(2)), 1581, 2);
  EXPECT_NEAR(static_cast<double>(sent(3.5)), 398, 2);
  EXPECT_EQ(sent(4), 100u);
  EXPECT_EQ(sent(50), 100u);
  config.warmup_epochs = 0;
  std::vector<float> values = gradient(layout, 1);
  EXPECT_EQ(encode(*coder("dgc", config), layout, values).size(), 800u);
}

TEST(Dgc, SendsATenthOfWhatTopKDoesUnlessTold) {
  const RangeLayout layout = one_part(100000);
  CompressConfig config;
  config.warmup_epochs = 0;
  const auto sent = [&](const char* key) {
    std::vector<float> values = gradient(layout, 1);
    return encode(*coder(key, config), layout, values).size() / 8;
  };
  EXPECT_EQ(sent("topk"), 1000u);
  EXPECT_EQ(sent("dgc"), 100u) << "Lin et al.: 99.9% of a gradient stay at home";
}

TEST(Dgc, IsTheOneWithMomentumCorrection) {
  for (const auto& row : compressors()) EXPECT_EQ(row.make.momentum_correction, row.key == "dgc") << row.key;
}

TEST(Threshold, SendsTauBeyondTau) {
  CompressConfig config;
  config.threshold = 0.5;
  const auto worker = coder("threshold", config);
  std::vector<float> values = {0.5f, 0.75f, -0.5f, -2, 0, 0.25f};
  const auto code = encode(*worker, one_part(6), values);
  EXPECT_EQ(code.size(), 4u + 2 * 4);
  EXPECT_THAT(decode(*worker, one_part(6), code), ElementsAre(0, 0.5f, 0, -0.5f, 0, 0));
  EXPECT_THAT(values, ElementsAre(0.5f, 0.25f, -0.5f, -1.5f, 0, 0.25f));
}

TEST(Sparse, LongRangesAreRefused) {
  const RangeLayout layout{.parts = {}, .length = (std::int64_t{1} << 32) + 1};
  for (const char* key : {"threshold", "topk", "dgc"}) {
    std::byte code[8];
    EXPECT_THAT([&] { coder(key)->encode(layout, nullptr, {}, code); }, testing::ThrowsMessage<ConfigError>(HasSubstr("smaller buckets")));
  }
}

}  // namespace
}  // namespace paceline::compress
