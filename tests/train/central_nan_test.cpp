// Training with a parameter server on samples that make gradients no numbers: they are refused and counted, and the run goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "central_runs.h"
#include "own_workload.h"
#include "paceline/tensor/device.h"

namespace paceline::train {
namespace {

using testing::HasSubstr;

/// A dataset of which some samples have a value that spoils what is made of them.
class Spoilt final : public data::Dataset {
 public:
  Spoilt(std::shared_ptr<const data::Dataset> sound, std::int64_t count, float value)
      : sound_(std::move(sound)), count_(count), value_(value) {}
  const data::Info& info() const override { return sound_->info(); }
  std::int64_t size() const override { return sound_->size(); }
  void prepare(data::Batch& batch, std::int64_t count) const override { sound_->prepare(batch, count); }
  void read(std::int64_t index, RandomStream* random, data::Batch& batch, std::int64_t slot) const override {
    sound_->read(index, random, batch, slot);
    if (index >= count_) return;
    const auto each = std::ssize(batch.inputs) / batch.count;
    batch.inputs[static_cast<std::size_t>(slot * each)] = value_;
  }

 private:
  std::shared_ptr<const data::Dataset> sound_;
  std::int64_t count_;
  float value_;
};

/// The first `spoilt` samples are. `losses`: of how many steps the loss was a number.
observe::RunEnded train_spoilt(Recipe recipe, std::int64_t spoilt, float value = NAN, std::int64_t* losses = nullptr) {
  recipe.data.residency = "host";
  Datasets datasets = make_datasets(recipe);
  datasets.training = std::make_unique<Spoilt>(std::move(datasets.training), spoilt, value);
  observe::Bus bus;
  if (losses) bus.add(std::make_unique<On<observe::StepDone>>([losses](const observe::StepDone&) { ++*losses; }));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .datasets = &datasets});
  const Folder folder;
  return trainer.run(folder.path());
}

void expect_goes_on_without(const char* device, float value) {
  for (const char* executor : {"virtual", "threads"})
    for (const char* optimizer : {"server", "worker"}) {  // a momentum that had it would keep it
      Recipe recipe = recipe_of("asgd", executor);
      recipe.train.device = device;
      recipe.model.hidden = {1};
      recipe.ps.optimizer = optimizer, recipe.optim.momentum = 0.5;
      std::int64_t losses = 0;
      const observe::RunEnded ended = train_spoilt(recipe, 1, value, &losses);
      const std::string what = fmt::format("{} on {} {} {}", value, device, executor, optimizer);
      EXPECT_EQ(ended.served->refused, recipe.train.epochs) << what;  // the sample comes once an epoch
      EXPECT_TRUE(std::isfinite(ended.train_loss)) << what;
      const std::int64_t numbers = ended.steps - (std::isnan(value) ? recipe.train.epochs : 0);
      EXPECT_TRUE(losses == numbers || recipe.ps.executor == "threads") << what;  // of threads, several losses come in one event
      recipe.data.train_samples = recipe.data.batch;                              // all of an epoch is under way at once
      EXPECT_GT(train_spoilt(recipe, 1, value).train_loss, 0) << what;
    }
}

// The one unit of the hidden layer does not let an infinite value through that has the sign against its weight: the loss is a number. The
// gradient is not, for it has zero times infinity.
constexpr float kHarmlessForwards = std::numeric_limits<float>::infinity();

TEST(Central, GoesOnWithoutAGradientThatIsNoNumber) {
  for (const float value : {NAN, kHarmlessForwards}) expect_goes_on_without("cpu", value);
}

TEST(Central, GoesOnWithoutAGradientThatIsNoNumberOnAGpu) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  for (const float value : {NAN, kHarmlessForwards}) expect_goes_on_without("cuda", value);
}

// The norms of a user's module with other buffers, one of which is not finite.
TEST(Central, KeepsTheNormsOfAUsersModuleFiniteToo) {
  const auto get = [](std::size_t index) {
    torch::data::Example<> sample = Points(96).get(index);
    if (index == 0) sample.data[0] = NAN;
    return sample;
  };
  Workload workload = regression();
  workload.training = dataset_of(get, 96, {.name = "points"});
  for (const char* executor : {"virtual", "threads"})
    for (const char* view : {"async", "worker"}) {
      Recipe recipe = small_recipe();
      recipe.strategy.name = "asgd", recipe.ps.executor = executor, recipe.ps.statistics = view;
      const std::string what = fmt::format("{} {}", executor, view);
      const Folder folder;
      const Trained run = train(recipe, workload, 2, folder.path());
      EXPECT_EQ(run.ended.served->refused, recipe.train.epochs) << what;
      EXPECT_TRUE(std::isfinite(run.ended.test_loss)) << what;
      for (const NamedTensor& item : newest_good_checkpoint(folder.path()).second.tensors)
        EXPECT_TRUE(item.name.find("running_") == std::string::npos || at::isfinite(item.tensor).all().item<bool>())
            << item.name << ", " << what;
    }
}

TEST(Central, EndsWhereNothingIsANumberAnyMore) {
  for (const char* executor : {"virtual", "threads"}) {
    Recipe recipe = recipe_of("asgd", executor);
    EXPECT_THROW(train_spoilt(recipe, recipe.data.train_samples), Diverged) << executor;  // an epoch of nothing else
    recipe.data.train_samples = 2400;
    try {
      train_spoilt(recipe, 2400);
      FAIL() << executor;
    } catch (const Diverged& problem) {
      EXPECT_THAT(problem.what(), HasSubstr("64 steps"));  // 16 for each worker
    }
  }
  EXPECT_THROW(train_spoilt(recipe_of("allreduce", "auto", 1), 1), Diverged);  // others end at once
}

}  // namespace
}  // namespace paceline::train
