// Entries that one data-parallel worker alone has: every stage of ZeRO, clipping and layer-wise rates train as one worker does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <mutex>

#include "paceline/base/error.h"
#include "paceline/data_parallel/buckets.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/step/boxes.h"
#include "tests/sharded/workers.h"

namespace paceline::sharded {
namespace {

struct PrivateWay {
  std::string name;
  std::int64_t micro_batches = 1, samples = 8;
  optim::OptimConfig optim = {.name = "adamw", .rate = 0.01, .epsilon = 1e-3};
};

const PrivateWay kPrivateWays[] = {
    {.name = "Plain"},
    {.name = "MicroBatches", .micro_batches = 2},
    {.name = "Clipped", .optim = {.name = "sgd", .rate = 0.05, .momentum = 0.9, .clip_norm = 0.3}},
    {.name = "Lars", .optim = {.name = "lars", .rate = 0.5, .weight_decay = 0.01, .trust = 0.01}},
    {.name = "LambClippedMicroBatches", .micro_batches = 2, .optim = {.name = "lamb", .rate = 0.01, .weight_decay = 0.01, .clip_norm = 1}},
};

Settings spread(const PrivateWay& way, int stage, std::int64_t experts_top = 0) {
  Settings settings{.network = "spread", .stage = stage, .micro_batches = way.micro_batches, .samples = way.samples, .optim = way.optim};
  if (experts_top > 0) settings.network = "gpt", settings.experts = 4, settings.experts_top = experts_top;
  settings.strategy.bucket_mb = 0.002;
  return settings;
}

/// Parameters and moments of all workers together, as whole tensors.
std::vector<step::NamedTensor> state_after(int workers, const Settings& settings, std::int64_t steps) {
  std::mutex mutex;
  std::vector<step::NamedTensor> all;
  with_workers(workers, settings, [&](Worker& worker) {
    worker.train(steps);
    tensor::Arena& arena = worker.model().arena();
    std::vector<tensor::Shard::Held> held;
    for (const tensor::OwnedRange& range : arena.owners(tensor::Role::parameter).ranges())
      if (range.held_by(worker.comm().rank())) held.push_back({range.begin, range.end, range.begin});
    std::vector<step::NamedTensor> mine = worker.strategy().save();
    step::show(mine, arena, "model.", arena.parameters(), held);
    const std::lock_guard lock(mutex);
    for (step::NamedTensor& item : mine) all.push_back({item.name, item.tensor.clone(), item.box});
  });
  return all;
}

class PrivateEntries : public testing::TestWithParam<std::tuple<PrivateWay, int>> {};

TEST_P(PrivateEntries, TrainAsOneWorkerDoes) {
  const auto& [way, workers] = GetParam();
  const std::vector<step::NamedTensor> one = state_after(1, spread(way, 0), 20);
  for (const int stage : {0, 1, 2, 3}) {
    const std::vector<step::NamedTensor> found = state_after(workers, spread(way, stage), 20);
    for (const step::NamedTensor& item : one) {
      const at::Tensor here = step::saved_or_none(found, item.name);
      ASSERT_TRUE(here.defined() && here.sizes() == item.tensor.sizes()) << item.name << ", stage " << stage;
      EXPECT_LT(relative(here, item.tensor), 1e-5) << item.name << ", stage " << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, PrivateEntries, testing::Combine(testing::ValuesIn(kPrivateWays), testing::Values(2, 4)),
                         [](const auto& test) { return fmt::format("{}_{}", std::get<0>(test.param).name, std::get<1>(test.param)); });

class ExpertsInStages : public testing::TestWithParam<std::tuple<PrivateWay, int>> {};

TEST_P(ExpertsInStages, TrainAsOneWorkerThatHoldsThemAll) {
  const auto& [way, workers] = GetParam();
  const std::int64_t top = workers / 2;
  const std::vector<step::NamedTensor> one = state_after(1, spread(way, 0, top), 20);
  for (const int stage : {0, 1, 2, 3}) {
    const std::vector<step::NamedTensor> found = state_after(workers, spread(way, stage, top), 20);
    for (const step::NamedTensor& item : one) {
      if (!item.name.starts_with("model.")) continue;
      const at::Tensor here = step::saved_or_none(found, item.name);
      ASSERT_TRUE(here.defined() && here.sizes() == item.tensor.sizes()) << item.name << ", stage " << stage;
      EXPECT_LT(relative(here, item.tensor), 1e-5) << item.name << ", stage " << stage;
    }
  }
}

const PrivateWay kExpertWays[] = {
    {.name = "Plain"},
    {.name = "Clipped", .optim = {.name = "sgd", .rate = 0.05, .momentum = 0.9, .clip_norm = 0.3}},
    {.name = "Lars", .optim = {.name = "lars", .rate = 0.5, .weight_decay = 0.01, .trust = 0.01}},
    {.name = "UnevenMicroBatches", .micro_batches = 2, .samples = 7},
    {.name = "FewerSamplesThanWorkers", .samples = 3, .optim = {.name = "sgd", .rate = 0.05, .momentum = 0.9}},
};

INSTANTIATE_TEST_SUITE_P(Ways, ExpertsInStages, testing::Combine(testing::ValuesIn(kExpertWays), testing::Values(2, 4)),
                         [](const auto& test) { return fmt::format("{}_{}", std::get<0>(test.param).name, std::get<1>(test.param)); });

TEST(PrivateParameters, StayWhereTheyAre) {
  for (const int stage : {0, 3})
    with_workers(2, spread(kPrivateWays[0], stage), [&](Worker& worker) {
      tensor::Arena& arena = worker.model().arena();
      const at::Tensor before = arena.parameter(2).clone();
      worker.train(1);
      EXPECT_FALSE(at::equal(arena.parameter(2), before)) << "it is trained";
      if (stage == 3) return;
      const at::Tensor mine = arena.parameter(2).clone();
      arena.parameter(0).fill_(worker.comm().rank());
      data_parallel::equalise(worker.comm(), worker.model());
      EXPECT_TRUE(at::equal(arena.parameter(2), mine));
      EXPECT_EQ(arena.parameter(0).abs().max().item<float>(), 0) << "worker 0's";
    });
}

// A gradient that nobody else has does not travel.
TEST(PrivateParameters, AreInNoBucket) {
  with_workers(2, spread(kPrivateWays[0], 0), [&](Worker& worker) {
    const tensor::Arena& arena = worker.model().arena();
    for (const auto& buckets :
         {data_parallel::cut_buckets(arena, 0), data_parallel::cut_buckets(arena, 1), data_parallel::unit_buckets(arena)}) {
      std::vector<int> seen(arena.entries().size(), 0);
      for (const data_parallel::Bucket& bucket : buckets) {
        EXPECT_EQ(bucket.begin, arena.entries()[bucket.first_entry].offset);
        EXPECT_EQ(bucket.end, arena.range_of(bucket.first_entry, bucket.last_entry).end);
        for (std::size_t entry = bucket.first_entry; entry < bucket.last_entry; ++entry) ++seen[entry];
      }
      EXPECT_EQ(seen, (std::vector<int>{1, 1, 0, 1}));
    }
    EXPECT_EQ(data_parallel::cut_buckets(arena, 0).size(), 2u);
  });
}

TEST(PrivateParameters, AreRefusedByStrategiesThatCannotHaveThem) {
  with_workers(2, spread(kPrivateWays[0], 0), [&](Worker& worker) {
    const auto refused = [&](const strategies::StrategyConfig& config, const step::Context& context, const std::string& fact) {
      try {
        strategies::make_strategy({config}, context);
        ADD_FAILURE() << fact;
      } catch (const ConfigError& problem) {
        EXPECT_NE(std::string(problem.what()).find(fact), std::string::npos) << problem.what();
        EXPECT_NE(std::string(problem.what()).find("spread.weight"), std::string::npos) << problem.what();
      }
    };
    for (const char* name : {"local_sgd", "stale_sync", "asgd"}) refused({.name = name}, worker.context(), "strategy.name=allreduce");
    step::Context context = worker.context();
    context.compression = "topk";
    refused({.name = "allreduce"}, context, "comm.compression=none");
  });
}

}  // namespace
}  // namespace paceline::sharded
