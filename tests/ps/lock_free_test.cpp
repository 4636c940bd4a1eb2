// Updates without a lock: no addition is lost, pushes go on beside pulls, and what cannot be one addition is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"
#include "tests/message_of.h"
#include "tests/ps/admissions.h"
#include "tests/ps/small_concurrent.h"

namespace paceline::ps {
namespace {

PsConfig hogwild() {
  PsConfig config = with("asp");
  config.executor = "threads", config.lock_free = true;
  return config;
}

// Every gradient is ±2⁻ᵏ everywhere, so that the sums are exact in any order.
TEST(LockFree, LosesNoAdditionOfManyThreads) {
  constexpr int kWorkers = 4, kSteps = 120;
  constexpr std::int64_t kElements = 3'001;
  const auto concurrent = make_concurrent(hogwild(), kWorkers, kElements);
  at_once(kWorkers, [&](int worker) {
    Floats values(kElements);
    for (int step = 0; step < kSteps; ++step) {
      concurrent->pull(worker, values.data(), 1);
      std::ranges::fill(values, std::ldexp(step % 3 ? 1.0f : -1.0f, -worker));
      EXPECT_EQ(concurrent->push(worker, values.data(), {.rate = 0.5f}), applied(1));
    }
  });
  double sum = 0;
  for (int worker = 0; worker < kWorkers; ++worker) sum += std::ldexp(80.0 - 40.0, -worker);
  EXPECT_EQ(parameters_of(*concurrent), Floats(kElements, static_cast<float>(-0.5 * sum)));
  concurrent->with([](Server& server) {
    EXPECT_EQ(server.version(), kWorkers * kSteps);
    std::int64_t gradients = 0;
    for (const auto& [staleness, count] : server.staleness()) gradients += count;
    EXPECT_EQ(gradients, kWorkers * kSteps);
  });
}

TEST(LockFree, DecaysAndScalesAsTheLockedUpdateDoes) {
  PsConfig locked = hogwild();
  locked.lock_free = false;
  const optim::OptimConfig optim{.momentum = 0, .weight_decay = 0.1};
  Server::Setup setup;
  setup.segments = {{0, 2}, {2, 3, false}};
  setup.length = setup.end = 5, setup.workers = 1;
  std::vector<Floats> results;
  for (const PsConfig& config : {locked, hogwild()}) {
    ConcurrentServer concurrent(std::make_unique<Server>(config, optim, setup), {}, steady_clock());
    concurrent.with([](Server& server) { std::fill_n(server.parameters(), 5, 2.0f); });
    concurrent.join(0);
    Floats values(5);
    for (int step = 0; step < 3; ++step) {
      concurrent.pull(0, values.data(), 0.5f);
      for (float& value : values) value *= 0.25f;
      concurrent.push(0, values.data(), {.rate = 0.5f, .scale = 0.5f});
    }
    results.push_back(parameters_of(concurrent));
  }
  for (std::size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(results[1][i], results[0][i]) << i;
  EXPECT_LT(results[1][0], results[1][4]) << "the second tensor does not decay";
}

TEST(LockFree, RefusesANonFiniteGradient) {
  const auto concurrent = make_concurrent(hogwild(), 1, 9);
  Floats values(9);
  concurrent->pull(0, values.data(), 1);
  values[4] = NAN;
  EXPECT_EQ(concurrent->push(0, values.data(), {.rate = 1}).fate, Admission::Fate::dropped);
  EXPECT_EQ(parameters_of(*concurrent), Floats(9, 0));
  concurrent->with([](Server& server) { EXPECT_EQ(server.refused(), 1); });
}

TEST(LockFree, IsRefusedWhereAnUpdateIsMoreThanOneAddition) {
  const optim::OptimConfig plain{.momentum = 0};
  EXPECT_NO_THROW(validate(hogwild(), plain, 2));
  const auto why_not = [&](auto change, const optim::OptimConfig& optim) {
    PsConfig config = hogwild();
    change(config);
    return message_of<ConfigError>([&] { validate(config, optim, 2); });
  };
  const auto unchanged = [](PsConfig&) {};
  EXPECT_THAT(why_not(unchanged, {}), testing::HasSubstr("optim.momentum=0"));
  EXPECT_THAT(why_not(unchanged, {.name = "adam"}), testing::HasSubstr("optim.name=sgd"));
  EXPECT_THAT(why_not([](PsConfig& c) { c.executor = "virtual"; }, plain), testing::HasSubstr("ps.executor=threads"));
  EXPECT_THAT(why_not([](PsConfig& c) { c.rule = "dc_asgd"; }, plain), testing::HasSubstr("ps.rule=asgd"));
  EXPECT_THAT(why_not([](PsConfig& c) { c.consistency = "bsp"; }, plain), testing::HasSubstr("ps.consistency=asp"));
  EXPECT_THAT(why_not([](PsConfig& c) { c.consistency = "ssp"; }, plain), testing::HasSubstr("wait"));
  EXPECT_THAT(why_not([](PsConfig& c) { c.consistency = "k_batch_async"; }, plain), testing::HasSubstr("gathers"));
  EXPECT_THAT(why_not(unchanged, {.name = "lars", .momentum = 0}), testing::HasSubstr("optim.name=sgd")) << "it needs norms of tensors";
  EXPECT_THAT(why_not([](PsConfig& c) { c.averaging = 0.9; }, plain), testing::HasSubstr("ps.averaging=0"));
  PsConfig steps = hogwild();
  steps.optimizer = "worker";
  EXPECT_NO_THROW(validate(steps, {}, 2)) << "a step is one addition, whatever made it";
}

}  // namespace
}  // namespace paceline::ps
