// ZeRO's stages 1, 2 and 3 against one worker with the whole batch, and against plain data parallelism bit by bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/sharded/workers.h"

namespace paceline::sharded {
namespace {

struct Way {
  std::string name;
  std::int64_t micro_batches = 1, samples = 8;
  // An ε above rounding errors: Adam would make whole steps of the gradients of attention's key biases, which are 0 but for these.
  optim::OptimConfig optim = {.name = "adamw", .rate = 0.01, .epsilon = 1e-3};
};

const Way kWays[] = {
    {.name = "Plain"},
    {.name = "MicroBatches", .micro_batches = 2},
    {.name = "Uneven", .micro_batches = 2, .samples = 7},
    {.name = "Clipped", .optim = {.name = "sgd", .rate = 0.05, .momentum = 0.9, .clip_norm = 0.3}},
    {.name = "Lars", .optim = {.name = "lars", .rate = 0.5, .weight_decay = 0.01, .trust = 0.01}},
    {.name = "LambClippedMicroBatches", .micro_batches = 2, .optim = {.name = "lamb", .rate = 0.01, .weight_decay = 0.01, .clip_norm = 1}},
};

Settings settings_of(const Way& way, const std::string& network, int stage) {
  Settings settings{.network = network, .stage = stage, .micro_batches = way.micro_batches, .samples = way.samples, .optim = way.optim};
  settings.strategy.bucket_mb = 0.002;  // several buckets
  return settings;
}

/// Stage 3 gathers unit by unit, and refuses a module of one.
std::vector<int> stages_of(const std::string& network) { return network == "one_unit" ? std::vector{1, 2} : std::vector{1, 2, 3}; }

class Stages : public testing::TestWithParam<std::tuple<std::string, Way, int>> {};

TEST_P(Stages, TrainAsOneWorkerDoes) {
  constexpr std::int64_t kSteps = 20;
  const auto& [network, way, workers] = GetParam();
  const Trained one = train_workers(1, settings_of(way, network, 0), kSteps);
  for (const int stage : stages_of(network)) {
    SCOPED_TRACE(stage);
    const Trained trained = train_workers(workers, settings_of(way, network, stage), kSteps);
    ASSERT_TRUE(trained.parameters.defined()) << "all workers have the same parameters";
    EXPECT_LT(relative(trained.parameters, one.parameters), 1e-5);
    for (std::size_t step = 0; step < one.losses.size(); ++step)
      EXPECT_NEAR(trained.losses[step], one.losses[step], 1e-5 * std::abs(one.losses[step]) + 1e-6) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, Stages,
                         testing::Combine(testing::Values("mlp", "gpt", "sequential", "one_unit"), testing::ValuesIn(kWays),
                                          testing::Values(2, 3, 4)),
                         [](const auto& test) {
                           return fmt::format("{}_{}_{}", std::get<0>(test.param), std::get<1>(test.param).name, std::get<2>(test.param));
                         });

// Where an element's gradient is summed over the workers in the same order and its update is its own, not a bit differs.
TEST(Bits, OfStagesAreThoseOfPlainDataParallelism) {
  for (const std::string network : {"mlp", "resnet20", "gpt", "sequential", "one_unit"})
    for (const int workers : {2, 3, 4}) {
      Settings settings = settings_of(kWays[0], network, 0);
      if (network == "resnet20") settings.samples = 4 * workers, settings.strategy.bucket_mb = 0.2;
      settings.strategy.update = "whole";
      const Trained plain = train_workers(workers, settings, 4);
      settings.strategy.update = "auto";
      for (const int stage : stages_of(network)) {
        settings.stage = stage;
        if (stage == 3 && workers > 2) continue;  // other buckets: of three summands, others are added first
        const Trained trained = train_workers(workers, settings, 4);
        ASSERT_TRUE(trained.parameters.defined());
        EXPECT_TRUE(at::equal(trained.parameters, plain.parameters)) << network << ", stage " << stage << ", " << workers << " workers";
        EXPECT_EQ(trained.losses, plain.losses);
      }
    }
}

TEST(Bits, OfStagesDoNotDependOnOverlap) {
  for (const int stage : {2, 3}) {
    Settings settings = settings_of(kWays[1], "gpt", stage);
    const Trained in_pass = train_workers(3, settings, 3);
    settings.strategy.overlap = "on";
    const Trained beside = train_workers(3, settings, 3);
    EXPECT_TRUE(at::equal(in_pass.parameters, beside.parameters));
  }
}

// The norms see the whole batch, and so do one worker's.
TEST(SlowStages, TrainAResidualNetworkAsOneWorkerDoes) {
  Settings settings = settings_of({.name = "Sync", .samples = 12, .optim = {.name = "sgd", .rate = 0.002, .momentum = 0.9}}, "resnet20", 0);
  settings.strategy.batch_norm = "sync";
  const Trained one = train_workers(1, settings, 3);
  for (const int stage : {1, 2, 3})
    for (const int workers : {2, 3}) {
      settings.stage = stage;
      const Trained trained = train_workers(workers, settings, 3);
      ASSERT_TRUE(trained.parameters.defined());
      EXPECT_LT(relative(trained.parameters, one.parameters), 1e-4) << "stage " << stage;
    }
}

TEST(Traffic, IsThatOfAnAllreduceAndHalfAsMuchMoreInStageThree) {
  std::vector<double> bytes(4);
  for (const int stage : {0, 1, 2, 3}) {
    Settings settings = settings_of(kWays[0], "gpt", stage);
    settings.width = 64, settings.layers = 8;  // of which the unit that a backward pass finds in memory is a small part
    if (stage == 0) settings.strategy.update = "whole";
    with_workers(4, settings, [&](Worker& worker) {
      worker.train(2);
      if (worker.comm().rank() == 0) bytes[static_cast<std::size_t>(stage)] = static_cast<double>(worker.strategy().traffic().bytes_sent);
    });
  }
  EXPECT_NEAR(bytes[1] / bytes[0], 1, 1e-3);
  EXPECT_NEAR(bytes[2] / bytes[0], 1, 1e-3);
  EXPECT_LE(bytes[3] / bytes[0], 1.5);
  EXPECT_GT(bytes[3] / bytes[0], 1.4);
}

}  // namespace
}  // namespace paceline::sharded
