// The CPU's pass over rows against the definition of a pixel, which is also what the GPU kernel runs.
#include "paceline/data/augment.h"

#include <gtest/gtest.h>

#include <set>

namespace paceline::data {
namespace {

constexpr std::int64_t kChannels = 3, kHeight = 7, kWidth = 9;

Info small_info() {
  return {.key = "",
          .input = {kChannels, kHeight, kWidth},
          .classes = 1,
          .tokens = false,
          .mean = {0.5f, 0.1f, 0.9f},
          .deviation = {0.3f, 0.2f, 0.7f}};
}

std::vector<std::uint8_t> noise(std::size_t count) {
  RandomStream random(1, Purpose::test);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.next_u32());
  return bytes;
}

TEST(Augment, APassOverRowsHasTheBitsOfTheDefinition) {
  const Normalisation normalisation(small_info());
  const auto image = noise(kChannels * kHeight * kWidth);
  RandomStream random(2, Purpose::test);
  for (int trial = 0; trial < 500; ++trial) {
    AugmentPlan plan;
    plan.shift_x = static_cast<std::int16_t>(static_cast<int>(random.below(25)) - 12);  // also shifts past the whole image
    plan.shift_y = static_cast<std::int16_t>(static_cast<int>(random.below(25)) - 12);
    plan.cut = static_cast<std::int16_t>(random.below(6));
    plan.cut_x = static_cast<std::int16_t>(static_cast<int>(random.below(15)) - 4);
    plan.cut_y = static_cast<std::int16_t>(static_cast<int>(random.below(15)) - 4);
    plan.flip = static_cast<std::int16_t>(random.below(2));
    std::vector<float> out(image.size(), -1e9f);
    apply_plan(plan, image.data(), kHeight, kWidth, normalisation, out.data());
    for (std::int64_t c = 0, i = 0; c < kChannels; ++c)
      for (int y = 0; y < kHeight; ++y)
        for (int x = 0; x < kWidth; ++x, ++i)
          ASSERT_EQ(out[i], augmented(image.data() + c * kHeight * kWidth, plan, x, y, kHeight, kWidth, normalisation.centre[c],
                                      normalisation.scale[c]))
              << "trial " << trial << " at channel " << c << ", " << x << ", " << y;
  }
}

TEST(Augment, NormalisationIsThatOfTheTextbook) {
  const Info info = small_info();
  const Normalisation normalisation(info);
  for (int c = 0; c < kChannels; ++c)
    for (int byte : {0, 1, 127, 255})
      EXPECT_NEAR(normalised(static_cast<std::uint8_t>(byte), normalisation.centre[c], normalisation.scale[c]),
                  (byte / 255.0 - info.mean[c]) / info.deviation[c], 1e-5);
}

TEST(Augment, PlansStayWithinTheirBoundsAndReachThem) {
  DataConfig config;
  config.crop = 2;
  config.flip = true;
  config.cutout = 3;
  std::set<int> shifts_x, shifts_y, flips, cuts_x, cuts_y;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    RandomStream random(5, Purpose::augment, i);
    const AugmentPlan plan = draw_plan(config, static_cast<std::int64_t>(i), kHeight, kWidth, &random);
    EXPECT_EQ(plan.sample, static_cast<std::int32_t>(i));
    EXPECT_EQ(plan.cut, 3);
    shifts_x.insert(plan.shift_x);
    shifts_y.insert(plan.shift_y);
    flips.insert(plan.flip);
    cuts_x.insert(plan.cut_x);
    cuts_y.insert(plan.cut_y);
  }
  EXPECT_EQ(shifts_x, (std::set<int>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(shifts_y, shifts_x);
  EXPECT_EQ(flips, (std::set<int>{0, 1}));
  EXPECT_EQ(cuts_x.size(), static_cast<std::size_t>(kWidth));  // the centre lies on every column
  EXPECT_EQ(*cuts_x.begin(), -1);
  EXPECT_EQ(cuts_y.size(), static_cast<std::size_t>(kHeight));
}

TEST(Augment, WithoutAStreamOrSettingsNothingChanges) {
  DataConfig config;
  const auto same = [](const AugmentPlan& plan) { return plan.shift_x == 0 && plan.shift_y == 0 && plan.flip == 0 && plan.cut == 0; };
  EXPECT_TRUE(same(draw_plan(config, 3, kHeight, kWidth, nullptr)));
  config.crop = 0;
  config.flip = false;
  RandomStream random(1, Purpose::augment);
  EXPECT_TRUE(same(draw_plan(config, 3, kHeight, kWidth, &random)));
  EXPECT_EQ(random.position(), 0u);
}

}  // namespace
}  // namespace paceline::data
