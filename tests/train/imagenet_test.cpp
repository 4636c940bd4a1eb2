// The recipes for ImageNet: what they say at full size, and runs of them on a small folder of images that the test draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <fmt/format.h>

#include "paceline/base/random.h"
#include "paceline/train/workers.h"
#include "support.h"
#include "tests/data/jpeg.h"

namespace paceline::train {
namespace {

using testing::Each;
using testing::ElementsAre;

Recipe recipe_named(const std::string& name) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  Recipe recipe;
  recipe.config().load(root / "recipes" / ("imagenet_resnet50_" + name + ".toml"));
  return recipe;
}

/// Rate and batch at the beginning of an epoch of a full run.
std::pair<double, std::int64_t> at_epoch(const Recipe& recipe, double epoch) {
  const optim::Progress progress{.epoch = epoch, .epochs = static_cast<double>(recipe.train.epochs)};
  return {optim::learning_rate(recipe.schedule, recipe.optim.rate, recipe.data.batch, progress),
          optim::batch_at(recipe.schedule, recipe.data.batch, static_cast<std::int64_t>(epoch))};
}

TEST(ImagenetRecipes, GoyalScalesTheRateAndDividesItByTen) {
  const Recipe recipe = recipe_named("goyal");
  EXPECT_EQ(recipe.train.epochs, 90);
  EXPECT_NEAR(at_epoch(recipe, 0).first, 0.1, 1e-9) << "that of 256 samples";
  for (const auto& [epoch, rate] : {std::pair(5, 3.2), {29, 3.2}, {30, 0.32}, {60, 0.032}, {80, 0.0032}}) {
    EXPECT_NEAR(at_epoch(recipe, epoch).first, rate, 1e-9) << epoch;
    EXPECT_EQ(at_epoch(recipe, epoch).second, 8192);
  }
}

TEST(ImagenetRecipes, SmithActsAsGoyalWithABatchThatDoubles) {
  const Recipe recipe = recipe_named("smith"), other = recipe_named("goyal");
  for (const double epoch : {0., 5., 30., 60., 80.}) {
    const auto [rate, batch] = at_epoch(recipe, epoch);
    EXPECT_EQ(batch, epoch < 30 ? 8192 : 16384);
    EXPECT_NEAR(rate * 8192 / static_cast<double>(batch), at_epoch(other, epoch).first, 1e-9) << "a batch f times as large is a rate / f";
  }
}

TEST(ImagenetRecipes, SonyHasItsBatchesLarsAndTheTorus) {
  const Recipe recipe = recipe_named("sony");
  EXPECT_EQ(at_epoch(recipe, 0).second, 34816);  // 16 and 32 samples on each of 2176 GPUs
  EXPECT_EQ(at_epoch(recipe, 30).second, 69632);
  EXPECT_EQ(recipe.optim.name, "lars");
  EXPECT_EQ(recipe.comm.algorithm, "torus2d");
  EXPECT_EQ(recipe.comm.compression, "fp16");
}

TEST(ImagenetRecipes, AkibaGoesFromRmspropToSgdAndStartsSlowly) {
  const Recipe recipe = recipe_named("akiba");
  EXPECT_EQ(recipe.optim.name, "rmsprop_warmup");
  const double scaled = 0.1 * 32768 / 256, steps_an_epoch = 1281167.0 / 32768;
  for (const auto& [epoch, share] : {std::pair(0, 0.5), {39, 0.5}, {40, 0.075}, {70, 0.01}, {85, 0.001}})
    EXPECT_NEAR(at_epoch(recipe, epoch).first, share * scaled, 1e-9) << epoch;
  EXPECT_NEAR(recipe.optim.transition_center / steps_an_epoch, 10, 0.1);
  EXPECT_NEAR(recipe.optim.transition_period / steps_an_epoch, 5, 0.1);
}

TEST(ImagenetRecipes, JiaHasItsBatchLarsAndHalfPrecision) {
  const Recipe recipe = recipe_named("jia");
  EXPECT_EQ(at_epoch(recipe, 0).second, 2048 * 32);
  EXPECT_EQ(recipe.optim.name, "lars");
  EXPECT_FALSE(recipe.optim.decay_norms);
  EXPECT_EQ(recipe.comm.algorithm, "hierarchical");
  EXPECT_EQ(recipe.comm.compression, "fp16");
}

#ifdef PACELINE_WITH_JPEG

/// train/<class>/ and val/<class>/ as ImageNet has them: images of all sizes, whose tint is their class and the rest chance.
void draw_pictures(const data::Folder& folder) {
  constexpr int kClasses = 4, kTraining = 8, kTest = 2;
  for (int label = 0; label < kClasses; ++label)
    for (int i = 0; i < kTraining + kTest; ++i) {
      RandomStream chance(7, Purpose::test, static_cast<std::uint64_t>(label), static_cast<std::uint64_t>(i));
      data::DecodedImage image;
      image.resize({40 + 3 * i, 70 - 2 * i});
      for (std::size_t at = 0; at < image.rgb.size(); ++at)
        image.rgb[at] = static_cast<std::uint8_t>(chance.below(128) + (label == static_cast<int>(at % 3) ? 127 : 0));
      folder.write(fmt::format("{}/n{:08}/{}.JPEG", i < kTraining ? "train" : "val", label + 1, i), data::jpeg_of(image));
    }
}

struct Steps {
  observe::RunEnded ended;
  std::vector<double> losses, rates;
  std::vector<std::int64_t> batches;  // by step
};

/// Three epochs of the recipe on 32 small images with two workers. Only sizes and epochs are changed.
Steps run_small(const std::string& name, const std::vector<std::string>& settings) {
  const data::Folder images;
  draw_pictures(images);
  Recipe recipe = recipe_named(name);
  Config config = recipe.config();
  config.set("data.root=" + images.path().string());
  for (const char* setting :
       {"data.batch=8", "data.image_size=32", "train.epochs=3", "train.device=cpu", "train.checkpoints=false", "parallel.workers=2"})
    config.set(setting);
  for (const std::string& setting : settings) config.set(setting);
  Steps steps;
  observe::Bus bus;
  bus.add(std::make_unique<On<observe::StepDone>>([&](const observe::StepDone& done) {
    steps.losses.push_back(done.loss), steps.rates.push_back(done.rate), steps.batches.push_back(done.samples);
  }));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  const Folder run;
  steps.ended = Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop}).run(run.path());
  EXPECT_THAT(steps.losses, Each(testing::AllOf(testing::Gt(0), testing::Lt(20))));
  EXPECT_GE(steps.ended.test_accuracy, 0);
  EXPECT_EQ(steps.ended.workers, 2);
  return steps;
}

TEST(SlowImagenetRecipes, GoyalOnASmallFolder) {
  // Where the batch is smaller than the one that the rate was tuned for, there is nothing to warm up from; the rate falls at once.
  const Steps steps = run_small("goyal", {"schedule.milestones=[1,2]"});
  EXPECT_EQ(steps.batches, std::vector<std::int64_t>(12, 8));
  const double rate = 0.1 * 8 / 256;
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(steps.rates[i], rate * std::pow(0.1, i / 4), 1e-9) << i;
}

TEST(SlowImagenetRecipes, SmithOnASmallFolder) {
  const Steps steps = run_small("smith", {"schedule.milestones=[1,2]", "schedule.batch_milestones=[1,2]", "schedule.largest_batch=16"});
  EXPECT_THAT(steps.batches, ElementsAre(8, 8, 8, 8, 16, 16, 16, 16));
  const double rate = 0.1 * 8 / 256;
  EXPECT_NEAR(steps.rates[3], rate, 1e-9);
  EXPECT_NEAR(steps.rates[4], rate * 0.2, 1e-9);
  EXPECT_NEAR(steps.rates[6], rate * 0.02, 1e-9) << "past the largest batch the rate falls in its place";
}

TEST(SlowImagenetRecipes, SonyOnASmallFolder) {
  const Steps steps = run_small("sony", {"schedule.batch_milestones=[1]", "schedule.largest_batch=16"});
  EXPECT_THAT(steps.batches, ElementsAre(8, 8, 8, 8, 16, 16, 16, 16));
  EXPECT_EQ(steps.rates[0], 0) << "a warm-up that is longer than the run";
  EXPECT_TRUE(std::ranges::is_sorted(steps.rates.begin(), steps.rates.begin() + 4));
  ASSERT_TRUE(steps.ended.communication.has_value());
  EXPECT_NEAR(steps.ended.communication->ratio, 2, 0.01) << "half precision on the wire";
}

TEST(SlowImagenetRecipes, AkibaAndJiaOnASmallFolder) {
  const Steps akiba = run_small("akiba", {"optim.transition_center=2", "optim.transition_period=2"});
  EXPECT_EQ(akiba.batches, std::vector<std::int64_t>(12, 8));
  EXPECT_NEAR(akiba.rates[0], 0.5 * 0.1 * 8 / 256, 1e-9);
  const Steps jia = run_small("jia", {"comm.algorithm=auto"});
  EXPECT_NEAR(jia.ended.communication->ratio, 2, 0.01);
}

#endif

}  // namespace
}  // namespace paceline::train
