// Meetings of replicas against the same computed by hand from workers that never met.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "workers.h"

namespace paceline::strategies {
namespace {

constexpr int kReplicas = 3;
constexpr std::int64_t kPeriod = 4;
const std::vector<std::string> kReplicaStrategies = {"local_sgd", "sparknet", "easgd", "diloco", "gossip", "ad_psgd", "sgp"};

Settings meeting_of(const std::string& name) {
  Settings settings;
  settings.strategy.name = name;
  settings.strategy.period = kPeriod;
  return settings;
}

at::Tensor mean_of(const std::vector<at::Tensor>& replicas) { return at::stack(replicas).to(at::kDouble).mean(0); }

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance = 1e-6) {
  EXPECT_LE((actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>(), tolerance);
}

TEST(LocalSgd, ReplicasBecomeTheirMeanAtTheEndOfAPeriod) {
  const auto apart = train_apart(kReplicas, Settings(), kPeriod);
  const Trained met = train_workers(kReplicas, meeting_of("local_sgd"), kPeriod);
  for (const at::Tensor& own : met.own) expect_close(own, mean_of(apart));
}

TEST(LocalSgd, GoApartBetweenMeetings) {
  const Trained met = train_workers(kReplicas, meeting_of("local_sgd"), kPeriod + 1);
  EXPECT_GT((met.own[0] - met.own[1]).abs().max().item<double>(), 1e-5);
  expect_close(met.agreed, mean_of(met.own));
}

TEST(LocalSgd, MeetAtEveryStepBeforeTheyAreLocal) {
  Settings settings = meeting_of("local_sgd");
  settings.strategy.post_local_epoch = 10;
  const Trained met = train_workers(kReplicas, settings, 3);
  expect_close(met.own[0], met.own[2], 0);
}

TEST(SparkNet, AveragesLikeLocalSgd) {
  const Trained star = train_workers(kReplicas, meeting_of("sparknet"), kPeriod + 2),
                flat = train_workers(kReplicas, meeting_of("local_sgd"), kPeriod + 2);
  for (std::size_t i = 0; i < kReplicas; ++i) expect_close(star.own[i], flat.own[i]);
}

TEST(SparkNet, CountsWhatItsScheduleSends) {
  const auto sent = [](const std::string& algorithm) {
    Settings settings = meeting_of("sparknet");
    settings.comm.algorithm = algorithm;
    std::vector<double> replicas(kReplicas);  // worker by worker, in lengths of the replica
    with_workers(kReplicas, settings, [&](TestWorker& worker) {
      worker.train(1, kPeriod);
      const auto bytes = static_cast<double>(worker.strategy().traffic().bytes_sent);
      replicas[static_cast<std::size_t>(worker.comm().rank())] = bytes / static_cast<double>(worker.parameters().nbytes());
    });
    return replicas;
  };
  using testing::DoubleEq, testing::DoubleNear, testing::ElementsAre;
  // Up the chain 2, 1, 0, and down again.
  EXPECT_THAT(sent("ring"), ElementsAre(DoubleEq(1), DoubleEq(2), DoubleEq(1)));
  EXPECT_THAT(sent("tree"), ElementsAre(DoubleEq(2), DoubleEq(1), DoubleEq(1)));
  // In shared memory everyone adds a third, of which it sends two to the others, and gives its own to the master.
  const double third = 1.0 / kReplicas, near = 1e-2;
  for (const char* algorithm : {"direct", "auto"})
    EXPECT_THAT(sent(algorithm), ElementsAre(DoubleNear(2 * third + 2, near), DoubleNear(1, near), DoubleNear(1, near))) << algorithm;
}

TEST(Easgd, WorkersAndCentreAttractEachOther) {
  Settings settings = meeting_of("easgd");
  settings.strategy.elasticity = 0.2;
  const auto apart = train_apart(kReplicas, Settings(), kPeriod);
  const at::Tensor start = train_apart(1, Settings(), 0)[0].to(at::kDouble);
  const Trained met = train_workers(kReplicas, settings, kPeriod);
  at::Tensor centre = start.clone();
  for (std::size_t i = 0; i < kReplicas; ++i) {
    const at::Tensor pull = (apart[i].to(at::kDouble) - start) * 0.2;
    expect_close(met.own[i], apart[i].to(at::kDouble) - pull);
    centre += pull;
  }
  expect_close(met.agreed, centre);
}

TEST(DiLoCo, MakesAnOuterNesterovStep) {
  Settings settings = meeting_of("diloco");
  settings.strategy.outer_rate = 0.7, settings.strategy.outer_momentum = 0.9;
  const at::Tensor start = train_apart(1, Settings(), 0)[0].to(at::kDouble);
  const at::Tensor progress = start - mean_of(train_apart(kReplicas, Settings(), kPeriod));
  const Trained met = train_workers(kReplicas, settings, kPeriod);
  // The first velocity is the progress itself.
  for (const at::Tensor& own : met.own) expect_close(own, start - 0.7 * (progress + 0.9 * progress));
}

TEST(Gossip, APairTakesItsMeanAndTheSumOfAllIsKept) {
  const auto apart = train_apart(2, Settings(), 1);
  const Trained pair = train_workers(2, meeting_of("gossip"), 1);
  for (const at::Tensor& own : pair.own) expect_close(own, mean_of(apart));
  const Trained odd = train_workers(kReplicas, meeting_of("gossip"), 1);
  expect_close(mean_of(odd.own), mean_of(train_apart(kReplicas, Settings(), 1)));
}

TEST(Sgp, PushesHalfAndKeepsTheSum) {
  const auto apart = train_apart(4, Settings(), 1);
  const Trained met = train_workers(4, meeting_of("sgp"), 1);
  expect_close(mean_of(met.own), mean_of(apart));
  // Step 1 on four workers goes 2 places on.
  for (std::size_t i = 0; i < 4; ++i) expect_close(met.own[i], (apart[i].to(at::kDouble) + apart[(i + 2) % 4].to(at::kDouble)) / 2);
}

TEST(AdPsgd, KeepsTheSumWhateverTheOrder) {
  // With a rate of 0 nobody moves by itself: what meetings do to the sum is all there is.
  const Trained start = train_workers(4, meeting_of("ad_psgd"), 0);
  at::Tensor agreed;
  with_workers(4, meeting_of("ad_psgd"), [&](TestWorker& worker) {
    worker.parameters().add_(static_cast<double>(worker.comm().rank()));
    worker.train(1, 25, /*rate=*/0);
    const at::Tensor mean = worker.agreed();
    if (worker.comm().rank() == 0) agreed = mean;
  });
  expect_close(agreed, start.agreed + 1.5, 1e-5);
}

TEST(AdPsgd, AnotherNumberOfWorkersBeginsWithWhatWasAgreedOn) {
  Saved saved = saved_after(4, meeting_of("ad_psgd"));
  // Answers that had not been taken over yet: they are part of what was agreed on.
  for (step::NamedTensor& item : saved.state)
    if (item.name == "workers.change") item.tensor.fill_(1);
  ASSERT_TRUE(saved["workers.change"].defined());
  at::Tensor resumed;
  with_workers(2, meeting_of("ad_psgd"), [&](TestWorker& worker) {
    worker.resume(saved);
    worker.train(4, 6, /*rate=*/0);
    const at::Tensor mean = worker.agreed();
    if (worker.comm().rank() == 0) resumed = mean;
  });
  expect_close(resumed, saved.parameters, 1e-5);
}

TEST(AdPsgd, AnswersWithTheReplicaOfAnotherStrategysCheckpoint) {
  const Saved saved = saved_after(2, meeting_of("local_sgd"));
  with_workers(2, meeting_of("ad_psgd"), [&](TestWorker& worker) {
    worker.resume(saved);
    if (worker.comm().rank() != 0) return;  // makes no step, but answers
    worker.train(4, 4, /*rate=*/0);
    expect_close(worker.parameters(), saved["workers.parameters"].mean(0));
  });
}

TEST(StaleSync, CountsWhatItHides) {
  for (const std::int64_t staleness : {1, 3}) {
    Settings settings = meeting_of("stale_sync");
    settings.strategy.staleness = staleness;
    with_workers(2, settings, [&](TestWorker& worker) {
      const SteadyClock clock;
      const Nanoseconds began = clock.now();
      worker.train(1, 8);
      const step::Traffic traffic = worker.strategy().traffic();
      EXPECT_GT(traffic.communication_s, traffic.exposed_s) << "a whole pass lies between sending and waiting";
      EXPECT_LE(traffic.communication_s, seconds(clock.now() - began)) << "what is under way at the same time counts once";
    });
  }
}

TEST(StaleSync, AppliesTheGradientOfOneStepAgo) {
  // The gradients of step 1 are applied after step 2: until then nothing moves.
  Settings settings = meeting_of("stale_sync");
  const at::Tensor start = train_workers(2, settings, 0).agreed;
  expect_close(train_workers(2, settings, 1).agreed, start, 0);
  Settings prompt = meeting_of("allreduce");
  expect_close(train_workers(2, settings, 2).agreed, train_workers(2, prompt, 1).agreed);
}

TEST(StaleSync, TheFirstUpdateOfAdamIsItsFirst) {
  Settings stale = meeting_of("stale_sync"), prompt = meeting_of("allreduce");
  stale.optim.name = prompt.optim.name = "adam";
  stale.strategy.staleness = 3;
  expect_close(train_workers(2, stale, 4).agreed, train_workers(2, prompt, 1).agreed);
}

TEST(StaleSync, SaysWhatOfACheckpointDoesNotFit) {
  Settings settings = meeting_of("stale_sync");
  settings.strategy.staleness = 2;
  std::vector<step::NamedTensor> state;
  const auto why_not = [&](const Settings& other) {
    std::string message;
    with_workers(1, other, [&](TestWorker& worker) {
      try {
        worker.strategy().load(state);
      } catch (const ConfigError& problem) {
        message = problem.what();
      }
    });
    return message;
  };
  with_workers(1, settings, [&](TestWorker& worker) {
    worker.train(1, 2);
    worker.strategy().agree();
    state = worker.strategy().save();
  });
  EXPECT_EQ(why_not(settings), "");
  Settings longer = settings, prompter = settings;
  longer.hidden = {20};
  EXPECT_THAT(why_not(longer), testing::AllOf(testing::HasSubstr("values"), testing::Not(testing::HasSubstr("staleness"))));
  prompter.strategy.staleness = 1;
  EXPECT_THAT(why_not(prompter), testing::HasSubstr("strategy.staleness=2 or more"));
}

TEST(StaleSync, WithoutStalenessIsAllreduce) {
  Settings settings = meeting_of("stale_sync");
  settings.strategy.staleness = 0;
  expect_close(train_workers(kReplicas, settings, 5).agreed, train_workers(kReplicas, meeting_of("allreduce"), 5).agreed);
}

TEST(Allreduce, OfThreeWorkersIsNotCutByTheClock) {
  // Sums of three depend on the borders of their bucket, so a run that is to repeat takes the bucket that the documentation names.
  Settings settings = meeting_of("allreduce");
  settings.hidden = {700, 800};  // 2.2 MiB, in more than one bucket of the 2 MiB that would be tried first
  const auto after_a_step = [&](double bucket_mb) {
    settings.strategy.bucket_mb = bucket_mb;
    return train_workers(3, settings, 1).agreed;
  };
  const at::Tensor unasked = after_a_step(0);
  EXPECT_TRUE(at::equal(unasked, after_a_step(8)));
  EXPECT_FALSE(at::equal(unasked, after_a_step(2))) << "or nothing is tested";
}

class Resumed : public testing::TestWithParam<std::string> {};

TEST_P(Resumed, GoesOnWithTheSameBits) {
  const Settings settings = meeting_of(GetParam());
  const Trained through = train_workers(kReplicas, settings, 7);
  const Saved saved = saved_after(kReplicas, settings, nullptr, 5);
  std::vector<at::Tensor> resumed(kReplicas);
  with_workers(kReplicas, settings, [&](TestWorker& worker) {
    worker.resume(saved);
    worker.train(6, 7);
    resumed[static_cast<std::size_t>(worker.comm().rank())] = worker.parameters().clone();
  });
  for (std::size_t i = 0; i < kReplicas; ++i) EXPECT_TRUE(at::equal(resumed[i], through.own[i])) << "worker " << i;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Resumed,
                         testing::Values("allreduce", "stale_sync", "local_sgd", "sparknet", "easgd", "diloco", "gossip", "sgp"),
                         [](const auto& item) { return item.param; });

TEST(Replicas, KeepTheirMomentsThroughACheckpoint) {
  Settings settings = meeting_of("local_sgd");
  settings.strategy.period = 1'000'000;
  settings.optim.name = "adam";
  const Trained undisturbed = train_workers(kReplicas, settings, 4);
  with_workers(kReplicas, settings, [&](TestWorker& worker) {
    worker.train(1, 2);
    worker.strategy().agree();
    worker.strategy().save();
    worker.strategy().resume_training();
    worker.train(3, 4);
    EXPECT_TRUE(at::equal(worker.parameters(), undisturbed.own[static_cast<std::size_t>(worker.comm().rank())]));
  });
}

TEST(Replicas, GoOnUnderAnotherStrategy) {
  // With a rate of 0 nobody moves by itself: a meeting takes nobody further than the replicas were from what was agreed on, which the
  // memory of a strategy that did not write the checkpoint would.
  const auto distance = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); };
  for (const std::string& from : kReplicaStrategies) {
    const Saved saved = saved_after(2, meeting_of(from), nullptr, kPeriod);
    const at::Tensor rows = saved["workers.parameters"];
    const double of_mean = distance(rows.mean(0), saved.parameters), of_rows = distance(rows, saved.parameters);
    for (const std::string& to : kReplicaStrategies) {
      if (from == to) continue;
      with_workers(2, meeting_of(to), [&](TestWorker& worker) {
        worker.resume(saved);
        worker.train(kPeriod + 1, 2 * kPeriod, /*rate=*/0);
        EXPECT_LE(distance(worker.agreed(), saved.parameters), 2 * of_mean + 1e-5) << from << ", then " << to;
        EXPECT_LE(distance(worker.parameters(), saved.parameters), 2 * of_rows + 1e-5) << from << ", then " << to;
      });
    }
  }
}

TEST(Replicas, CountNothingThatAnEvaluationSends) {
  for (const std::string& name : kReplicaStrategies)
    with_workers(2, meeting_of(name), [&](TestWorker& worker) {
      worker.train(1, kPeriod);
      const std::int64_t sent = worker.strategy().traffic().bytes_sent;
      if (worker.comm().rank() == 0) {
        EXPECT_GT(sent, 0) << name;
      }
      worker.agreed();
      EXPECT_EQ(worker.strategy().traffic().bytes_sent, sent) << name;
    });
}

TEST(Replicas, RefuseWhatTheyCannotDo) {
  Settings settings = meeting_of("local_sgd");
  settings.compression = "int8";
  std::string message;
  with_workers(1, Settings(), [&](TestWorker& worker) {
    try {
      const TestWorker refused(worker.comm(), settings);
    } catch (const ConfigError& problem) {
      message = problem.what();
    }
  });
  EXPECT_THAT(message, testing::HasSubstr("strategy.name=allreduce"));
}

}  // namespace
}  // namespace paceline::strategies
