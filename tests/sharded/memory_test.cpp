// What a rank has in memory under ZeRO's stages, by the arena's own count: N parameters on W workers with Adam's two moments are
//   4N + 4N + 8N bytes plainly, 4N + 4N + 8N/W in stage 1, 4N + 4N/W + 8N/W in stage 2, (4N + 4N + 8N)/W in stage 3,
// and from stage 2 on the gradients of the buckets that are under way, in stage 3 the parameters of two units.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "tests/message_of.h"
#include "tests/sharded/workers.h"

namespace paceline::sharded {
namespace {

using tensor::Role;

struct Held {
  double parameter = 0, gradient = 0, moment = 0;  // most bytes during two steps
  double elements = 0, largest = 0;                // of the arena, of a unit
};

Held held_by(const Settings& settings, int workers) {
  Held held;
  with_workers(workers, settings, [&](Worker& worker) {
    worker.train(1);
    tensor::Ledger& ledger = worker.model().arena().ledger();
    ledger.reset_peaks();
    worker.train(2);
    if (worker.comm().rank() > 0) return;
    const auto peak = [&](Role role) { return static_cast<double>(ledger.peak(role)); };
    held = {peak(Role::parameter), peak(Role::gradient), peak(Role::moment), static_cast<double>(worker.model().arena().length())};
    for (const nn::Unit& unit : worker.model().units())
      held.largest =
          std::max(held.largest, static_cast<double>(worker.model().arena().range_of(unit.first_entry, unit.last_entry).count()));
  });
  return held;
}

TEST(Memory, IsWhatTheFormulaSays) {
  Settings settings{.network = "gpt", .layers = 6, .width = 192};
  settings.strategy.bucket_mb = 0.5;
  constexpr double kSlack = 1.03, kBucket = 0.5 * (1 << 20);  // pages that neighbours share; bytes
  for (const int workers : {2, 4}) {
    const auto in_stage = [&](int stage) {
      settings.stage = stage, settings.strategy.update = stage == 0 ? "whole" : "auto";
      return held_by(settings, workers);
    };
    const Held plain = in_stage(0), first = in_stage(1), second = in_stage(2), third = in_stage(3);
    const double n = plain.elements, own = n / workers, unit = plain.largest;
    EXPECT_NEAR(plain.parameter / (4 * n), 1, 0.03);
    EXPECT_NEAR(plain.gradient / (4 * n), 1, 0.03);
    EXPECT_NEAR(plain.moment / (8 * n), 1, 0.03);
    EXPECT_NEAR(first.gradient / (4 * n), 1, 0.03);
    EXPECT_NEAR(first.moment / (8 * own), 1, 0.03);
    EXPECT_NEAR(second.parameter / (4 * n), 1, 0.03);
    EXPECT_LE(second.gradient, (4 * own + 4 * unit + 2 * kBucket) * kSlack) << "its own, and a unit's with the two buckets before it";
    EXPECT_NEAR(second.moment / (8 * own), 1, 0.03);
    EXPECT_LE(third.parameter, (4 * own + 8 * unit) * kSlack) << "its own, and those of two units";
    EXPECT_LE(third.gradient, (4 * own + 4 * unit) * kSlack);
    EXPECT_NEAR(third.moment / (8 * own), 1, 0.03);
  }
}

TEST(Memory, OfABfloat16CopyGoesWithItsUnits) {
  Settings settings{.network = "gpt", .stage = 3, .precision = tensor::Precision::bf16, .layers = 6, .width = 192};
  const Held held = held_by(settings, 2);
  EXPECT_LE(held.parameter, (4 * held.elements / 2 + (8 + 4) * held.largest) * 1.03);
  settings.layers = 2, settings.width = 16;
  const Trained sharded = train_workers(2, settings, 3);
  settings.stage = 0, settings.strategy.update = "whole";
  EXPECT_TRUE(at::equal(sharded.parameters, train_workers(2, settings, 3).parameters)) << "the same bits with half of the memory";
}

TEST(Gathering, EvaluatesAndDiagnosesWithoutSamplesToo) {
  nn::Pass pass;
  pass.training = false;
  at::Tensor expected;
  with_workers(1, {.network = "gpt", .samples = 2},
               [&](Worker& worker) { expected = worker.model().run(worker.batch(1).inputs, pass, nullptr); });
  with_workers(3, {.network = "gpt", .stage = 3, .samples = 2}, [&](Worker& worker) {
    const step::Batch batch = worker.batch(1);
    if (batch.inputs.size(0) == 0) {
      worker.model().sit_out_run(worker.model().all(), false);
      worker.model().sit_out_run(worker.model().all(), false);
      return;
    }
    const at::Tensor output = worker.model().run(batch.inputs, pass, nullptr);
    EXPECT_TRUE(at::allclose(output, expected.narrow(0, 2 * worker.comm().rank() / 3, output.size(0)), 1e-5, 1e-6));
    at::Tensor last;
    worker.model().walk(batch.inputs, pass, [&](std::size_t, const at::Tensor& shown) { last = shown; });
    EXPECT_TRUE(at::equal(last, output));
  });
}

TEST(Gathering, RefusesAModuleOfOneUnit) {
  auto group = comm::local_group(2);
  const SteadyClock clock;
  torch::nn::Linear module(4, 4);
  const std::string said = message_of<ConfigError>([&] { GatheringModel(nn::model_of(module), *group[0], clock, 3); });
  EXPECT_NE(said.find("parallel.zero=2"), std::string::npos) << said;
}

TEST(Stage, RefusesWholeUpdates) {
  Settings settings{.network = "mlp", .stage = 1};
  settings.strategy.update = "whole";
  auto group = comm::local_group(2);
  std::vector<std::thread> threads;
  for (auto& comm : group) threads.emplace_back([&] { EXPECT_THROW(Worker(*comm, settings), ConfigError); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace paceline::sharded
