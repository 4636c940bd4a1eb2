// Parameters and gradients in 16 bits with master copies in fp32, and the scale of the loss.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "paceline/step/loss_scale.h"
#include "tests/sharded/workers.h"

namespace paceline::sharded {
namespace {

using tensor::Role;

Settings settings_of(c10::ScalarType storage, int stage) {
  Settings settings{.network = "gpt", .stage = stage, .storage = storage};
  settings.strategy.bucket_mb = 0.002;
  return settings;
}

// bf16 keeps 8 bits, fp16 keeps 11; what is compared went through 20 steps of rounded gradients.
TEST(Storage, In16BitsTrainsAsFp32Does) {
  for (const auto& [storage, tolerance] : {std::pair{at::kBFloat16, 0.05}, {at::kHalf, 0.01}})
    for (const int workers : {1, 2, 3})
      for (const int stage : {0, 1, 2, 3}) {
        if (workers == 1 && stage > 0) continue;
        const Trained trained = train_workers(workers, settings_of(storage, stage), 20);
        ASSERT_TRUE(trained.parameters.defined());
        // The first scale is too large for some, and the first steps are then left out.
        ASSERT_LE(trained.skipped, storage == at::kHalf ? 4 : 0);
        const Trained exact = train_workers(1, settings_of(at::kFloat, 0), 20, 1 + trained.skipped);
        EXPECT_EQ(trained.parameters.scalar_type(), storage);
        EXPECT_LT(relative(trained.parameters, exact.parameters), tolerance) << c10::toString(storage) << ", stage " << stage;
        EXPECT_NEAR(trained.losses.back() / exact.losses.back(), 1, tolerance);
      }
}

// An update much smaller than a rounding error of bf16 is not lost: the masters add it up.
TEST(Storage, AddsUpUpdatesThatAreSmallerThanItsRounding) {
  Settings settings = settings_of(at::kBFloat16, 0);
  settings.optim = {.name = "sgd", .rate = 1e-4, .momentum = 0};
  const Trained few = train_workers(1, settings, 1);
  const Trained many = train_workers(1, settings, 200);
  settings.storage = at::kFloat;
  const at::Tensor before = train_workers(1, settings, 1).parameters, after = train_workers(1, settings, 200).parameters;
  const double moved = (after - before).norm().item<double>();
  const double followed =
      ((many.parameters.to(at::kFloat) - few.parameters.to(at::kFloat)) * (after - before)).sum().item<double>() / moved;
  EXPECT_GT(moved, 0);
  EXPECT_NEAR(followed / moved, 1, 0.3);
}

TEST(Storage, HasTwoTwoAndSixteenBytesForAParameter) {
  for (const int workers : {1, 4}) {
    Settings settings = settings_of(at::kBFloat16, workers == 1 ? 0 : 1);
    settings.precision = tensor::Precision::bf16;
    settings.layers = 4, settings.width = 192;
    with_workers(workers, settings, [&](Worker& worker) {
      worker.train(1);
      const tensor::Arena& arena = worker.model().arena();
      const auto held = [&](Role role) { return static_cast<double>(arena.ledger().bytes(role)) / static_cast<double>(arena.length()); };
      EXPECT_NEAR(held(Role::parameter), 2, 0.05);
      EXPECT_NEAR(held(Role::gradient), 2, 0.05);
      EXPECT_NEAR(held(Role::master) * workers, 8, 0.2) << "parameters and gradients in fp32";
      EXPECT_NEAR(held(Role::moment) * workers, 8, 0.2);
    });
  }
}

Settings with_fp32_gradients(c10::ScalarType storage, int stage) {
  Settings settings = settings_of(storage, stage);
  settings.gradients = at::kFloat;
  return settings;
}

// The optimizer needs no second copy of gradients that are in fp32 already.
TEST(Fp32Gradients, HaveTwoFourAndTwelveBytesForAParameter) {
  for (const auto& [workers, stage] : {std::pair{1, 0}, {4, 1}, {4, 2}}) {
    Settings settings = with_fp32_gradients(at::kBFloat16, stage);
    settings.precision = tensor::Precision::bf16, settings.strategy.bucket_mb = 1;
    settings.layers = 4, settings.width = 192;
    with_workers(workers, settings, [&, workers = workers, stage = stage](Worker& worker) {
      worker.train(1);
      const tensor::Arena& arena = worker.model().arena();
      const auto held = [&](Role role) { return static_cast<double>(arena.ledger().bytes(role)) / static_cast<double>(arena.length()); };
      EXPECT_NEAR(held(Role::parameter), 2, 0.05);
      if (stage < 2) {
        EXPECT_NEAR(held(Role::gradient), 4, 0.05);
      } else {
        EXPECT_LT(held(Role::gradient), 3.5) << "the own part, and pages for what comes next";
      }
      EXPECT_NEAR(held(Role::master) * workers, 4, 0.1) << "parameters in fp32";
      EXPECT_NEAR(held(Role::moment) * workers, 8, 0.2);
    });
  }
}

// The products are those of fp32 parameters with the same values, and their gradients are added up without a rounding: so they have the
// same bits, which sums in 16 bits do not.
TEST(Fp32Gradients, AddUpMicroBatchesAsFp32Does) {
  for (const char* network : {"gpt", "resnet20"})
    for (const auto precision : {tensor::Precision::fp32, tensor::Precision::bf16})
      for (const auto storage : {at::kBFloat16, at::kHalf}) {
        Settings settings{.network = network, .micro_batches = 4, .precision = precision, .storage = storage};
        at::Tensor parameters;
        with_workers(1, settings, [&](Worker& worker) { parameters = worker.parameters(); });
        const auto gradients_in = [&](c10::ScalarType stored, c10::ScalarType added) {
          settings.storage = stored, settings.gradients = added;
          at::Tensor gradients;
          with_workers(1, settings, [&](Worker& worker) {
            worker.model().arena().parameters().copy_(parameters), worker.model().refresh();
            worker.train(1);
            gradients = worker.model().arena().gradients().to(at::kFloat);
          });
          return gradients;
        };
        const at::Tensor exact = gradients_in(at::kFloat, at::kFloat);
        EXPECT_TRUE(at::equal(gradients_in(storage, at::kFloat), exact)) << network << ' ' << c10::toString(storage);
        if (storage == at::kHalf) continue;
        EXPECT_GT(relative(gradients_in(storage, storage), exact), 1e-4) << network;
      }
}

// Masters are owned part by part while gradients lie where they were made.
TEST(Fp32Gradients, TrainInEveryStageAsWithoutZero) {
  for (const auto& [optimizer, clip] : {std::pair{"adamw", 0.0}, {"adamw", 0.5}, {"lamb", 0.5}})
    for (const int workers : {2, 3})
      for (const std::int64_t micro_batches : {1, 2}) {
        Settings settings = with_fp32_gradients(at::kBFloat16, 0);
        settings.optim = {.name = optimizer, .rate = 0.01, .epsilon = 1e-3, .clip_norm = clip};
        settings.micro_batches = micro_batches;
        const Trained alone = train_workers(1, settings, 5);
        for (const int stage : {0, 1, 2, 3}) {
          settings.stage = stage;
          const Trained trained = train_workers(workers, settings, 5);
          ASSERT_TRUE(trained.parameters.defined());
          EXPECT_LT(relative(trained.parameters, alone.parameters), 0.01) << optimizer << ' ' << clip << ", stage " << stage;
        }
      }
}

// Nothing is left to underflow: what is stored in fp16 was computed with masters, and no gradient passes through it.
TEST(Fp32Gradients, OfFp16NeedNoScaleOfTheLoss) {
  for (const int workers : {1, 2})
    for (const int stage : {0, 2}) {
      const Trained trained = train_workers(workers, with_fp32_gradients(at::kHalf, workers > 1 ? stage : 0), 20);
      const Trained exact = train_workers(1, settings_of(at::kFloat, 0), 20);
      ASSERT_TRUE(trained.parameters.defined());
      EXPECT_EQ(trained.skipped, 0);
      EXPECT_LT(relative(trained.parameters, exact.parameters), 0.01);
    }
  with_workers(1, with_fp32_gradients(at::kHalf, 0), [](Worker& worker) { EXPECT_FALSE(step::LossScale(worker.context()).on()); });
}

// LibTorch's batch norm takes weights of the type of its statistics.
TEST(Storage, OfNormsIsRoundedLikeTheRest) {
  for (const auto precision : {tensor::Precision::fp32, tensor::Precision::bf16})
    for (const auto storage : {at::kBFloat16, at::kHalf}) {
      Settings settings{.network = "resnet20", .stage = 3, .precision = precision, .storage = storage};
      const Trained trained = train_workers(2, settings, 3);
      ASSERT_TRUE(trained.parameters.defined());
      EXPECT_TRUE(trained.parameters.isfinite().all().item<bool>());
    }
}

TEST(LossScale, HalvesOnAnOverflowOfAnyRankAndLeavesTheStepOutOnAll) {
  for (const int stage : {0, 1, 2, 3})
    with_workers(2, settings_of(at::kHalf, stage), [&](Worker& worker) {
      worker.train(2);
      const std::int64_t before = worker.strategy().skipped_steps();
      const at::Tensor parameters = worker.parameters();
      worker.loss().explodes = worker.comm().rank() == 1;
      worker.train(1);
      worker.loss().explodes = false;
      EXPECT_EQ(worker.strategy().skipped_steps(), before + 1);
      EXPECT_TRUE(at::equal(worker.parameters(), parameters)) << "nobody made the step";
      worker.train(1);
      EXPECT_EQ(worker.strategy().skipped_steps(), before + 1);
      EXPECT_FALSE(at::equal(worker.parameters(), parameters));
    });
}

// Shares of the mean add up to what one worker has; whole means of fewer samples are larger, and their sum overflows long before the mean.
TEST(LossScale, ManyWorkersLeaveOutTheStepsOfOneWorker) {
  const Trained alone = train_workers(1, settings_of(at::kHalf, 0), 10);
  for (const int workers : {2, 4})
    for (const int stage : {0, 1, 2, 3}) {
      const Trained trained = train_workers(workers, settings_of(at::kHalf, stage), 10);
      ASSERT_TRUE(trained.parameters.defined());
      EXPECT_EQ(trained.skipped, alone.skipped) << workers << " workers, stage " << stage;
      EXPECT_LT(relative(trained.parameters, alone.parameters), 1e-2) << workers << " workers, stage " << stage;
    }
}

TEST(LossScale, DoublesAfterManyGoodSteps) {
  with_workers(1, settings_of(at::kHalf, 0), [&](Worker& worker) {
    step::LossScale scale(worker.context());
    EXPECT_EQ(scale.scale(), 65536);
    EXPECT_FALSE(scale.accepts(false));
    EXPECT_EQ(scale.scale(), 32768);
    for (int i = 0; i < 1999; ++i) EXPECT_TRUE(scale.accepts(true));
    EXPECT_EQ(scale.scale(), 32768);
    scale.accepts(true);
    EXPECT_EQ(scale.scale(), 65536);
    step::LossScale resumed(worker.context());
    resumed.accepts(false), resumed.accepts(false);
    resumed.load(scale.save());
    EXPECT_EQ(resumed.scale(), 65536);
    EXPECT_EQ(resumed.skipped(), 1);
  });
  with_workers(1, settings_of(at::kBFloat16, 0), [&](Worker& worker) {
    step::LossScale off(worker.context());
    EXPECT_EQ(off.scale(), 1);
    EXPECT_TRUE(off.save().empty());
  });
}

// Gradients that travel in bf16 keep 8 bits; the sums of them are those of fp32.
TEST(Storage, TakesGradientsThatTravelInBfloat16) {
  for (const auto& [storage, tolerance] : {std::pair{at::kFloat, 0.01}, {at::kBFloat16, 0.05}})
    for (const int workers : {2, 3})
      for (const int stage : {0, 1, 2, 3}) {
        Settings settings = settings_of(storage, stage);
        const Trained exact = train_workers(1, settings_of(at::kFloat, 0), 20);
        const Trained plain = train_workers(workers, settings, 20);
        settings.bf16_gradients = true;
        const Trained trained = train_workers(workers, settings, 20), again = train_workers(workers, settings, 20);
        ASSERT_TRUE(trained.parameters.defined()) << "all workers have the same parameters";
        EXPECT_TRUE(at::equal(trained.parameters, again.parameters));
        EXPECT_LT(relative(trained.parameters, exact.parameters), tolerance) << c10::toString(storage) << ", stage " << stage;
        const bool rounds = storage == at::kFloat;  // two summands of bf16 have the same rounded mean by either way
        EXPECT_TRUE(!rounds || !at::equal(trained.parameters, plain.parameters)) << "they are rounded on their way";
      }
}

// The host's update is the device's: its master copies have the parameters' bits where those are fp32.
TEST(Offload, HasTheSameBits) {
  for (const auto& [storage, gradients] : {std::pair{at::kFloat, at::kFloat}, {at::kBFloat16, at::kBFloat16}, {at::kBFloat16, at::kFloat}})
    for (const int workers : {1, 2})
      for (const int stage : {0, 1, 2, 3})
        for (const double clip : {0.0, 0.5}) {
          if (workers == 1 && stage > 0) continue;
          Settings settings = settings_of(storage, stage);
          settings.gradients = gradients, settings.optim.clip_norm = clip, settings.micro_batches = 2;
          const Trained plain = train_workers(workers, settings, 5);
          settings.offload = true;
          const Trained trained = train_workers(workers, settings, 5);
          ASSERT_TRUE(trained.parameters.defined());
          EXPECT_TRUE(at::equal(trained.parameters, plain.parameters)) << workers << " workers, stage " << stage << ", clip " << clip;
        }
}

// Of tensors in pieces, too, whose squares the host adds up over the workers.
TEST(Offload, HasTheNormsOfWholeTensors) {
  for (const char* optimizer : {"lars", "lamb"})
    for (const int workers : {2, 3})
      for (const int stage : {0, 1, 2, 3}) {
        Settings settings = settings_of(at::kFloat, stage);
        settings.optim = {.name = optimizer, .rate = 0.01, .weight_decay = 0.01, .clip_norm = 0.5};
        settings.micro_batches = 2;
        const Trained plain = train_workers(workers, settings, 5);
        settings.offload = true;
        const Trained trained = train_workers(workers, settings, 5);
        ASSERT_TRUE(trained.parameters.defined());
        EXPECT_TRUE(at::equal(trained.parameters, plain.parameters)) << optimizer << ", " << workers << " workers, stage " << stage;
      }
}

TEST(Offload, CountsItsStateApart) {
  Settings settings = settings_of(at::kFloat, 0);
  settings.layers = 4, settings.width = 64, settings.offload = true;
  with_workers(1, settings, [&](Worker& worker) {
    worker.train(1);
    const tensor::Arena& arena = worker.model().arena();
    const std::int64_t bytes = 4 * arena.length();
    EXPECT_EQ(arena.ledger().bytes(Role::moment) + arena.ledger().bytes(Role::master), 0);
    EXPECT_EQ(arena.host_ledger().bytes(Role::moment), 2 * bytes);
    EXPECT_EQ(arena.host_ledger().bytes(Role::master), 2 * bytes) << "master copies, and the gradients that came down to them";
  });
}

// Whoever resumes need not offload, and the other way round.
TEST(Offload, ShowsTheStateThatOthersRead) {
  for (const bool first : {false, true}) {
    Settings settings = settings_of(at::kFloat, 0);
    settings.offload = first;
    std::vector<step::NamedTensor> saved;
    at::Tensor parameters, expected, resumed;
    with_workers(1, settings, [&](Worker& worker) {
      worker.train(3);
      parameters = worker.parameters();
      for (const step::NamedTensor& item : worker.strategy().save()) {
        EXPECT_FALSE(item.name.starts_with("optim.master.")) << "the parameters say the same";
        saved.push_back(item), saved.back().tensor = item.tensor.clone();
      }
      worker.train(5, 4);
      expected = worker.parameters();
    });
    settings.offload = !first;
    with_workers(1, settings, [&](Worker& worker) {
      worker.model().arena().parameters().copy_(parameters);
      worker.strategy().load(saved);
      worker.train(5, 4);
      resumed = worker.parameters();
    });
    EXPECT_TRUE(at::equal(resumed, expected));
  }
}

}  // namespace
}  // namespace paceline::sharded
