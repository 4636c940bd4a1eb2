// What strategies remember from one meeting to the next, and whom they meet: with a rate of 0 nobody moves by itself, so what is seen is
// the meetings alone.
#include <gtest/gtest.h>

#include <set>

#include "workers.h"

namespace paceline::strategies {
namespace {

constexpr int kMembers = 3;

Settings remembering(const std::string& name) {
  Settings settings;
  settings.strategy.name = name;
  settings.strategy.period = 4;
  return settings;
}

void expect_equal_nearly(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_LE((actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>(), 1e-6);
}

TEST(DiLoCo, TheOuterVelocityActsAtLaterMeetings) {
  Settings settings = remembering("diloco");
  settings.strategy.outer_rate = 0.7, settings.strategy.outer_momentum = 0.9;
  const at::Tensor start = train_apart(1, Settings(), 0)[0].to(at::kDouble);
  const at::Tensor progress = start - at::stack(train_apart(kMembers, Settings(), 4)).to(at::kDouble).mean(0);
  std::vector<at::Tensor> own(kMembers);
  with_workers(kMembers, settings, [&](TestWorker& worker) {
    worker.train(1, 4);
    worker.train(5, 12, /*rate=*/0);  // two meetings without progress: v ← μ v
    own[static_cast<std::size_t>(worker.comm().rank())] = worker.parameters().clone();
  });
  double velocity = 1, moved = 0.7 * (1 + 0.9);
  for (int meeting = 0; meeting < 2; ++meeting) velocity *= 0.9, moved += 0.7 * 0.9 * velocity;
  for (const at::Tensor& replica : own) expect_equal_nearly(replica, start - moved * progress);
}

TEST(Easgd, TheCentreRemembersEarlierMeetings) {
  // Replicas and centre come closer from meeting to meeting, and their common mean stays where it is.
  Settings settings = remembering("easgd");
  settings.strategy.elasticity = 0.2, settings.strategy.period = 1;
  const at::Tensor start = train_apart(1, Settings(), 0)[0];
  with_workers(kMembers, settings, [&](TestWorker& worker) {
    worker.parameters().add_(static_cast<double>(worker.comm().rank()));
    double centre = 0, replicas[kMembers] = {0, 1, 2};
    for (std::int64_t step = 1; step <= 5; ++step) {
      worker.train(step, step, /*rate=*/0);
      double pulls = 0;
      for (double& replica : replicas) {
        const double pull = 0.2 * (replica - centre);
        replica -= pull, pulls += pull;
      }
      centre += pulls;
    }
    expect_equal_nearly(worker.parameters(), start + replicas[worker.comm().rank()]);
    expect_equal_nearly(worker.agreed(), start + centre);
  });
}

TEST(Gossip, MeetsEveryOtherWorkerInTurn) {
  // A replica that is its worker's number r becomes (r + partner) / 2.
  constexpr int kGossips = 4, kGossipSteps = 40;
  std::vector<std::vector<int>> partners(kGossips);
  with_workers(kGossips, remembering("gossip"), [&](TestWorker& worker) {
    const int rank = worker.comm().rank();
    for (std::int64_t step = 1; step <= kGossipSteps; ++step) {
      worker.parameters().fill_(static_cast<double>(rank));
      worker.train(step, step, /*rate=*/0);
      const double met = 2 * worker.parameters().mean().item<double>() - rank;
      partners[static_cast<std::size_t>(rank)].push_back(static_cast<int>(std::lround(met)));
    }
  });
  for (int rank = 0; rank < kGossips; ++rank) {
    const auto& mine = partners[static_cast<std::size_t>(rank)];
    EXPECT_EQ(std::set<int>(mine.begin(), mine.end()).size(), kGossips - 1U) << "worker " << rank << " meets everybody";
    for (std::size_t step = 0; step < mine.size(); ++step)
      EXPECT_EQ(partners[static_cast<std::size_t>(mine[step])][step], rank) << "step " << step + 1;
  }
}

TEST(Sgp, PushesFurtherFromStepToStep) {
  // The exponential graph of four workers: 2 places on, then 1, then 2 …: worker r has (r + (r − hop)) / 2.
  with_workers(4, remembering("sgp"), [&](TestWorker& worker) {
    const int rank = worker.comm().rank();
    for (const auto& [step, hop] : {std::pair<std::int64_t, int>{1, 2}, {2, 1}, {3, 2}, {4, 1}}) {
      worker.parameters().fill_(static_cast<double>(rank));
      worker.train(step, step, /*rate=*/0);
      expect_equal_nearly(worker.parameters(), at::full_like(worker.parameters(), (rank + (rank + 4 - hop) % 4) / 2.0));
    }
  });
}

TEST(Statistics, AreTheMeanOfAllWorkersOrTheFirstOnes) {
  for (const char* strategy : {"allreduce", "local_sgd"})
    for (const bool mean : {true, false}) {
      Settings settings = remembering(strategy);
      settings.network = "resnet20";
      settings.strategy.statistics = mean ? "mean" : "first";
      with_workers(kMembers, settings, [&](TestWorker& worker) {
        at::Tensor statistics = worker.module().statistics().parameters();
        ASSERT_GT(statistics.numel(), 0);
        const double own = std::pow(2.0, worker.comm().rank());  // 1, 2, 4
        statistics.fill_(own);
        worker.strategy().agree();
        expect_equal_nearly(statistics, at::full_like(statistics, mean ? 7.0 / 3 : 1.0));
        worker.strategy().resume_training();
        expect_equal_nearly(statistics, at::full_like(statistics, own));
      });
    }
}

TEST(Dgc, VelocitiesAddUpInTheResidual) {
  // Where nothing was sent, two gradients leave v = g₁ + (m g₁ + g₂) and u = m g₁ + g₂.
  Settings settings = remembering("allreduce");
  settings.compression = "dgc";
  settings.compress.density = 0.01, settings.compress.warmup_epochs = 0;
  settings.optim.momentum = 0.75;
  Settings plain;
  plain.strategy.name = "local_sgd", plain.strategy.period = 1'000'000, plain.optim.momentum = 0;
  std::vector<at::Tensor> gradients[2] = {std::vector<at::Tensor>(2), std::vector<at::Tensor>(2)};
  for (const int step : {1, 2})
    with_workers(2, plain, [&](TestWorker& worker) {
      const at::Tensor before = worker.parameters().clone();
      worker.train(step, step, /*rate=*/1);
      gradients[step - 1][static_cast<std::size_t>(worker.comm().rank())] = before - worker.parameters();
    });
  Shown shown(2);
  with_workers(2, settings, [&](TestWorker& worker) {
    worker.train(1, 2, /*rate=*/0);
    show_state(worker, shown);
  });
  const std::vector<step::NamedTensor> state = merged(shown);
  const at::Tensor residual = flat_rows(state, "compress.residual", settings), velocity = flat_rows(state, "compress.momentum", settings);
  ASSERT_TRUE(residual.defined() && velocity.defined());
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const auto& first = gradients[0][static_cast<std::size_t>(rank)];
    const auto& second = gradients[1][static_cast<std::size_t>(rank)];
    const at::Tensor speed = 0.75 * first + second;
    const at::Tensor right = ((velocity[rank] - speed).abs() < 1e-5).logical_and((residual[rank] - first - speed).abs() < 1e-5);
    EXPECT_GT(right.to(at::kDouble).mean().item<double>(), 0.95) << "worker " << rank << ": all but the few that were sent";
  }
}

}  // namespace
}  // namespace paceline::strategies
