// Compressed exchanges: nothing is lost but for what residuals hold, all workers agree, and states survive a checkpoint.
#include <gtest/gtest.h>

#include <cmath>

#include "paceline/data_parallel/buckets.h"
#include "workers.h"

namespace paceline::strategies {
namespace {

constexpr int kWorkers = 3;

Settings settings_of(const std::string& compression) {
  Settings settings;
  settings.strategy.name = "allreduce";
  settings.strategy.bucket_mb = 0.0001;  // several buckets
  settings.compression = compression;
  settings.compress.density = 0.1;
  return settings;
}

class Compressed : public testing::TestWithParam<std::string> {};

TEST_P(Compressed, AllWorkersHaveTheSameParametersAndCountTheirBytes) {
  std::vector<at::Tensor> own(kWorkers);
  with_workers(kWorkers, settings_of(GetParam()), [&](TestWorker& worker) {
    worker.train(1, 4, 0.01);
    own[static_cast<std::size_t>(worker.comm().rank())] = worker.parameters().clone();
    const step::Traffic traffic = worker.strategy().traffic();
    EXPECT_GT(traffic.bytes_sent, 0);
    EXPECT_GT(traffic.bytes_plain, 0);
  });
  EXPECT_TRUE(at::equal(own[0], own[1]));
  EXPECT_TRUE(at::equal(own[0], own[2]));
  EXPECT_TRUE(at::isfinite(own[0]).all().item<bool>());
}

TEST_P(Compressed, ResumesWithTheSameBits) {
  const Settings settings = settings_of(GetParam());
  Shown shown(kWorkers);
  at::Tensor parameters, through, resumed;
  with_workers(kWorkers, settings, [&](TestWorker& worker) {
    worker.train(1, 3);
    show_state(worker, shown);
    if (worker.comm().rank() == 0) parameters = worker.parameters().clone();
    worker.train(4, 5);
    if (worker.comm().rank() == 0) through = worker.parameters().clone();
  });
  const std::vector<step::NamedTensor> state = merged(shown);
  with_workers(kWorkers, settings, [&](TestWorker& worker) {
    worker.parameters().copy_(parameters);
    worker.strategy().load(state);
    worker.train(4, 5);
    if (worker.comm().rank() == 0) resumed = worker.parameters().clone();
  });
  EXPECT_TRUE(at::equal(resumed, through));
}

TEST_P(Compressed, GoesOnWithAnotherNumberOfWorkers) {
  const Settings settings = settings_of(GetParam());
  Shown shown(kWorkers);
  with_workers(kWorkers, settings, [&](TestWorker& worker) {
    worker.train(1, 3);
    show_state(worker, shown);
  });
  const std::vector<step::NamedTensor> state = merged(shown);
  with_workers(2, settings, [&](TestWorker& worker) {
    worker.strategy().load(state);
    worker.train(4, 5);
    EXPECT_TRUE(at::isfinite(worker.parameters()).all().item<bool>());
  });
  if (GetParam() != "ternary") {
    EXPECT_GT(flat_rows(state, "compress.residual", settings).abs().sum().item<double>(), 0) << "three steps leave something unsaid";
  }
}

/// Flat, as in the arena.
at::Tensor momentum_of(const Saved& saved) {
  at::Tensor flat;
  with_workers(1, Settings(), [&](TestWorker& worker) {
    flat = at::zeros_like(worker.parameters());
    const tensor::Arena& arena = worker.module().arena();
    for (std::size_t i = 0; i < arena.entries().size(); ++i) {
      at::Tensor place = arena.view(flat, i);
      if (const at::Tensor momentum = saved["optim.momentum." + arena.entries()[i].name]; momentum.defined()) place.copy_(momentum);
    }
  });
  return flat;
}

TEST_P(Compressed, OneWorkerGoesOnFromTwoAndSaysWhatTheyDidNot) {
  Settings settings = settings_of(GetParam());
  settings.optim.momentum = 0.75;
  const Saved two = saved_after(2, settings);
  at::Tensor unsaid = flat_rows(two.state, "compress.residual").mean(0);
  if (const at::Tensor second = flat_rows(two.state, "compress.second_residual"); second.defined()) unsaid += second.sum(0);
  const bool velocities = flat_rows(two.state, "compress.momentum").defined();
  const at::Tensor momentum = velocities ? flat_rows(two.state, "compress.momentum").mean(0) : momentum_of(two);
  // The first step with nothing from before: its gradient alone.
  const double rate = 0.1;
  Saved start = saved_after(1, Settings(), nullptr, 0);
  start.parameters = two.parameters;
  const Saved fresh = saved_after(1, Settings(), &start, 1);
  const at::Tensor expected = fresh.parameters - rate * (0.75 * momentum + unsaid * (velocities ? 0.25 : 1));
  for (const char* strategy : {"allreduce", "single"}) {
    settings.strategy.name = strategy;
    EXPECT_TRUE(at::allclose(saved_after(1, settings, &two, 1).parameters, expected, 1e-4, 1e-6)) << strategy;
    // Whoever stops before the first step has lost nothing either.
    const Saved again = saved_after(1, settings, &two, 0);
    EXPECT_TRUE(at::allclose(flat_rows(again.state, "compress.residual")[0], unsaid, 1e-5, 1e-7)) << strategy;
    EXPECT_TRUE(at::allclose(saved_after(1, settings, &again, 1).parameters, expected, 1e-4, 1e-6)) << strategy;
  }
}

TEST_P(Compressed, TwoWorkersGoOnFromOne) {
  Settings settings = settings_of(GetParam());
  for (const char* strategy : {"allreduce", "single"}) {
    settings.strategy.name = strategy;
    const Saved one = saved_after(1, settings);
    settings.strategy.name = "allreduce";
    const Saved begin = saved_after(2, settings, &one, 0), end = saved_after(2, settings, &one, 2);
    EXPECT_EQ(flat_rows(begin.state, "compress.residual").abs().sum().item<double>(), 0);
    const at::Tensor velocities = flat_rows(begin.state, "compress.momentum");
    EXPECT_TRUE(at::equal(velocities.defined() ? velocities[1] : momentum_of(begin), momentum_of(one))) << "the momentum goes on";
    EXPECT_GT(momentum_of(one).abs().sum().item<double>(), 0);
    EXPECT_TRUE(at::isfinite(end.parameters).all().item<bool>());
  }
}

TEST_P(Compressed, ComesNearToUncompressedTraining) {
  // Residuals bring what was not said later: after many small steps the way is nearly the same.
  const auto reach = [](const Settings& settings) {
    at::Tensor result;
    with_workers(2, settings, [&](TestWorker& worker) {
      worker.train(1, 60, 0.002);
      if (worker.comm().rank() == 0) result = worker.parameters().clone();
    });
    return result;
  };
  Settings plain = settings_of("none");
  plain.optim.momentum = 0;
  Settings compressed = settings_of(GetParam());
  compressed.optim.momentum = 0;
  compressed.compress.feedback = "on";        // ternary goes without by itself; its noise would grow in the residual
  compressed.compress.clip_deviations = 1.5;  // if it did not clip as docs/results/compressors.md advises
  compressed.compress.threshold = 0.05;       // the size of the larger gradients here
  compressed.compress.warmup_epochs = 1;      // ten steps
  const at::Tensor start = train_apart(1, Settings(), 0)[0], expected = reach(plain), actual = reach(compressed);
  EXPECT_LT((actual - expected).norm().item<double>(), 0.1 * (expected - start).norm().item<double>());
}

TEST(Dgc, EveryBucketIsClippedToItsShareOfTheNorm) {
  Settings settings = settings_of("dgc");
  settings.optim.momentum = 0;
  settings.compress.density = 1, settings.compress.warmup_epochs = 0;  // all is said
  settings.compress.dgc_clip = 0.05;
  const at::Tensor start = train_apart(1, Settings(), 0)[0];
  const std::vector<at::Tensor> apart = train_apart(2, Settings(), 1);
  at::Tensor expected = start.clone(), clipped;
  with_workers(2, settings, [&](TestWorker& worker) {
    worker.train(1, 1);
    if (worker.comm().rank() != 0) return;
    clipped = worker.parameters().clone();
    const tensor::Arena& arena = worker.module().arena();
    const std::vector<data_parallel::Bucket> buckets =
        data_parallel::cut_buckets(arena, static_cast<std::int64_t>(settings.strategy.bucket_mb * (1 << 20)));
    EXPECT_GT(buckets.size(), 1U);
    for (const data_parallel::Bucket& bucket : buckets)
      for (const at::Tensor& own : apart) {
        const at::Tensor step = (own - start).narrow(0, bucket.begin, bucket.count());  // −γ g
        const double most = 0.1 * 0.05 * std::sqrt(static_cast<double>(bucket.count()) / static_cast<double>(arena.length()) / 2);
        const double norm = step.norm().item<double>();
        EXPECT_GT(norm, most) << "or nothing is tested";
        expected.narrow(0, bucket.begin, bucket.count()).add_(step, most / norm / 2);
      }
  });
  EXPECT_TRUE(at::allclose(clipped, expected, 1e-4, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Compressors, Compressed,
                         testing::Values("fp16", "bf16", "int8", "dynamic8", "onebit", "ternary", "sign", "threshold", "topk", "dgc",
                                         "powersgd"),
                         [](const auto& item) { return item.param; });

/// How far two workers that normalise as `batch_norm` says end from one that has both shares.
double distance_from_whole_batch(const std::string& batch_norm) {
  Settings settings;
  settings.network = "resnet18";
  settings.strategy.name = "allreduce";
  settings.strategy.batch_norm = batch_norm;
  std::vector<step::Batch> shares(2);
  at::Tensor together, alone;
  with_workers(2, settings, [&](TestWorker& worker) {
    const step::Batch share = worker.batch(1, 2);
    shares[static_cast<std::size_t>(worker.comm().rank())] = share;
    worker.strategy().step(share, {.step = 1, .rate = 0.01});
    if (worker.comm().rank() == 0) together = at::cat({worker.parameters(), worker.module().statistics().parameters()});
  });
  settings.strategy.name = "single";
  with_workers(1, settings, [&](TestWorker& worker) {
    const step::Batch whole = {at::cat({shares[0].inputs, shares[1].inputs}), at::cat({shares[0].targets, shares[1].targets}), 4};
    worker.strategy().step(whole, {.step = 1, .rate = 0.01});
    alone = at::cat({worker.parameters(), worker.module().statistics().parameters()});
  });
  return ((alone - together).norm() / alone.norm()).item<double>();
}

TEST(SynchronisedNorm, EqualsTheNormOfTheWholeBatch) {
  const double synchronised = distance_from_whole_batch("sync");
  EXPECT_LT(synchronised, 1e-5);
  EXPECT_GT(distance_from_whole_batch("local"), 100 * synchronised) << "without it, the shares have statistics of their own";
}

}  // namespace
}  // namespace paceline::strategies
