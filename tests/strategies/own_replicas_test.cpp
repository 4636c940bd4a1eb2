// Meetings in a loop of one's own against the strategies of the same name: the same replicas after every step.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/replica.h"
#include "workers.h"

namespace paceline::strategies {
namespace {

constexpr std::int64_t kOwnPeriod = 3;

std::unique_ptr<Replica> replica_of(const std::string& strategy, torch::nn::Module& module, comm::Communicator& comm) {
  if (strategy == "local_sgd") return std::make_unique<LocalSgd>(module, comm, LocalSgd::Options{.period = kOwnPeriod});
  if (strategy == "easgd")
    return std::make_unique<ElasticAveraging>(module, comm, ElasticAveraging::Options{.period = kOwnPeriod, .elasticity = 0.2});
  if (strategy == "diloco") return std::make_unique<DiLoCo>(module, comm, DiLoCo::Options{.period = kOwnPeriod});
  return std::make_unique<Gossip>(module, comm, /*seed=*/5);  // that of TestWorker
}

class OwnReplicas : public testing::TestWithParam<std::string> {};

TEST_P(OwnReplicas, MeetAsThoseOfTheStrategy) {
  Settings settings;
  settings.strategy.name = GetParam(), settings.strategy.period = kOwnPeriod, settings.strategy.elasticity = 0.2;
  with_workers(3, settings, [&](TestWorker& worker) {
    torch::nn::Sequential net(torch::nn::Linear(25, 19), torch::nn::ReLU(), torch::nn::Linear(19, 4));
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < net->parameters().size(); ++i) net->parameters()[i].copy_(worker.module().arena().parameter(i));
    }
    const auto replica = replica_of(GetParam(), *net, worker.comm());
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(settings.optim.momentum));
    for (std::int64_t step = 1; step <= 2 * kOwnPeriod + 1; ++step) {
      worker.train(step, step);
      const step::Batch batch = worker.batch(step);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(batch.inputs.flatten(1)), batch.targets).backward();
      optimizer.step();
      replica->step();
      EXPECT_TRUE(torch::allclose(replica->arena().parameters(), worker.parameters(), 1e-4, 1e-6)) << "step " << step;
    }
    EXPECT_GT(replica->bytes_sent(), 0);
    const at::Tensor agreed = worker.agreed(), own = replica->arena().parameters().clone();
    {
      const Replica::Agreed scope(*replica);
      EXPECT_TRUE(torch::allclose(replica->arena().parameters(), agreed, 1e-4, 1e-6));
      EXPECT_THROW(replica->step(), ConfigError);
    }
    EXPECT_TRUE(torch::equal(replica->arena().parameters(), own));
  });
}
INSTANTIATE_TEST_SUITE_P(Every, OwnReplicas, testing::Values("local_sgd", "easgd", "diloco", "gossip"),
                         [](const auto& one) { return one.param; });

TEST(OwnReplica, AgreesOnTheMeanOfRunningStatistics) {
  auto group = comm::local_group(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      torch::nn::BatchNorm1d norm(2);
      LocalSgd average(*norm, *group[static_cast<std::size_t>(rank)]);
      norm->running_mean.fill_(rank), norm->num_batches_tracked.fill_(7 + rank);
      {
        const Replica::Agreed agreed(average);
        EXPECT_TRUE(norm->running_mean.eq(0.5).all().item<bool>());
        EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 7);
      }
      EXPECT_TRUE(norm->running_mean.eq(rank).all().item<bool>());
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 7 + rank);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(OwnReplica, BeginsWithWorker0sModuleAndMeetsAtEveryStepBeforeItsEpoch) {
  auto group = comm::local_group(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const torch::NoGradGuard no_grad;
      torch::nn::Linear net(2, 2);
      net->weight.fill_(rank), net->bias.fill_(3);
      LocalSgd average(*net, *group[static_cast<std::size_t>(rank)], {.period = 100, .post_local_epoch = 1});
      EXPECT_TRUE(net->weight.eq(0).all().item<bool>());
      net->weight.fill_(rank);
      average.step();
      EXPECT_TRUE(net->weight.eq(0.5).all().item<bool>());
      average.set_epoch(1);
      net->weight.fill_(rank);
      average.step();
      EXPECT_TRUE(net->weight.eq(rank).all().item<bool>());
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(OwnReplica, RefusesWhatARecipeRefuses) {
  const auto group = comm::local_group(1);
  torch::nn::Linear net(2, 2);
  EXPECT_THROW(LocalSgd(*net, *group[0], {.period = 0}), ConfigError);
  EXPECT_THROW(ElasticAveraging(*net, *group[0], {.elasticity = -1}), ConfigError);
  EXPECT_THROW(DiLoCo(*net, *group[0], {.outer_rate = 0}), ConfigError);
}

}  // namespace
}  // namespace paceline::strategies
