// Meetings beyond the first one, whose memory the first does not show, against the same in double from workers that never met.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "workers.h"

namespace paceline::strategies {
namespace {

constexpr int kLaterReplicas = 3;
constexpr std::int64_t kLaterPeriod = 4;

Settings later_meeting_of(const std::string& name) {
  Settings settings;
  settings.strategy.name = name;
  settings.strategy.period = kLaterPeriod;
  return settings;
}

at::Tensor mean_of_replicas(const std::vector<at::Tensor>& replicas) { return at::stack(replicas).to(at::kDouble).mean(0); }

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  EXPECT_LE((actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>(), tolerance);
}

/// Workers as they are after the steps of one period that they make apart, from these parameters on; a velocity of 0 makes plain SGD.
std::vector<at::Tensor> apart_from(const std::vector<at::Tensor>& starts, std::int64_t first) {
  std::vector<at::Tensor> result(starts.size());
  Settings alone = later_meeting_of("local_sgd");
  alone.strategy.period = 1'000'000, alone.optim.momentum = 0;
  with_workers(static_cast<int>(starts.size()), alone, [&](TestWorker& worker) {
    const auto rank = static_cast<std::size_t>(worker.comm().rank());
    worker.parameters().copy_(starts[rank]);
    worker.train(first, first + kLaterPeriod - 1);
    result[rank] = worker.parameters().to(at::kDouble);
  });
  return result;
}

TEST(DiLoCo, KeepsItsVelocityBeyondTheFirstOuterStep) {
  Settings settings = later_meeting_of("diloco");
  settings.strategy.outer_rate = 0.5, settings.strategy.outer_momentum = 0.8, settings.optim.momentum = 0;
  at::Tensor outer = train_apart(1, Settings(), 0)[0].to(at::kDouble), velocity = at::zeros_like(outer);
  for (std::int64_t meeting = 0; meeting < 3; ++meeting) {
    const at::Tensor progress = outer - mean_of_replicas(apart_from(std::vector(kLaterReplicas, outer), meeting * kLaterPeriod + 1));
    velocity = 0.8 * velocity + progress;
    outer = outer - 0.5 * (progress + 0.8 * velocity);
  }
  const Trained met = train_workers(kLaterReplicas, settings, 3 * kLaterPeriod);
  for (const at::Tensor& own : met.own) expect_near(own, outer, 5e-6);
}

TEST(DiLoCo, MeetsRarelyUnlessTold) {
  Settings settings = later_meeting_of("diloco");
  settings.strategy.period = 0;
  EXPECT_EQ(period_of(settings.strategy), 500);
  settings.strategy.name = "local_sgd";
  EXPECT_EQ(period_of(settings.strategy), 8);
  settings.strategy.name = "allreduce";
  EXPECT_EQ(period_of(settings.strategy), 1);
}

TEST(Easgd, MovesItsCentreBeyondTheFirstMeeting) {
  Settings settings = later_meeting_of("easgd");
  settings.strategy.elasticity = 0.2, settings.optim.momentum = 0;
  at::Tensor centre = train_apart(1, Settings(), 0)[0].to(at::kDouble);
  std::vector<at::Tensor> replicas(kLaterReplicas, centre);
  for (std::int64_t meeting = 0; meeting < 3; ++meeting) {
    replicas = apart_from(replicas, meeting * kLaterPeriod + 1);
    const at::Tensor before = centre.clone();
    for (at::Tensor& replica : replicas) {
      const at::Tensor pull = 0.2 * (replica - before);
      replica = replica - pull;
      centre = centre + pull;
    }
  }
  const Trained met = train_workers(kLaterReplicas, settings, 3 * kLaterPeriod);
  for (std::size_t i = 0; i < kLaterReplicas; ++i) expect_near(met.own[i], replicas[i], 5e-6);
  expect_near(met.agreed, centre, 5e-6);
}

TEST(Sgp, OnARandomGraphIsRightByItsWeights) {
  // With a rate of 0 nobody moves by itself. Worker i begins with i, and on this graph some get more than they give: without the weights,
  // the replicas would not come to the mean of 1.5, nor would what is agreed on stay there.
  Settings settings = later_meeting_of("sgp");
  settings.strategy.graph = "random";
  const Trained start = train_workers(4, settings, 0);
  std::vector<double> weights;
  std::mutex mutex;
  with_workers(4, settings, [&](TestWorker& worker) {
    worker.parameters().add_(static_cast<double>(worker.comm().rank()));
    for (std::int64_t step = 1; step <= 40; ++step) {
      worker.train(step, step, /*rate=*/0);
      if (step > 3) continue;
      expect_near(worker.agreed(), start.agreed + 1.5, 1e-5);
    }
    expect_near(worker.parameters(), start.agreed + 1.5, 1e-4);
    worker.strategy().agree();
    for (const step::NamedTensor& item : worker.strategy().save())
      if (item.name == "workers.weight") {
        const std::lock_guard lock(mutex);
        weights.push_back(item.tensor.min().item<double>());
      }
  });
  EXPECT_LT(*std::ranges::min_element(weights), 0.9) << "or the weights do nothing";
}

}  // namespace
}  // namespace paceline::strategies
