// A module, a loss and datasets of a user's in the Trainer.
#include "paceline/train/workload.h"

#include <torch/optim.h>

#include "paceline/data/sampler.h"
#include "tests/train/own_workload.h"

namespace paceline::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Workload, IsTrainedAndTold) {
  const Folder folder;
  const Trained run = train(small_recipe(), regression(), 1, folder.path());
  EXPECT_EQ(run.started.network, "regressor");
  EXPECT_EQ(run.started.dataset, "points");
  EXPECT_FALSE(run.started.shows_accuracy());
  EXPECT_TRUE(std::isnan(run.accuracies.front()));
  EXPECT_TRUE(std::isnan(run.ended.test_accuracy));
  EXPECT_LT(run.losses.back(), 0.7 * run.losses.front());
  ASSERT_EQ(run.ended.test_metrics.size(), 1u);
  EXPECT_EQ(run.ended.test_metrics[0].name, "distance");
  EXPECT_GT(run.ended.test_metrics[0].value, 0);
  EXPECT_LT(run.ended.test_metrics[0].value, 1);
}

// By hand: LibTorch's own module, optimizer and loss on the batches of the same order.
TEST(Workload, IsWhatAPlainLoopWouldTrain) {
  const Folder folder;
  Recipe recipe = small_recipe();
  recipe.optim.momentum = 0.9, recipe.train.epochs = 1;
  const Trained run = train(recipe, regression(), 1, folder.path());

  torch::manual_seed(static_cast<std::uint64_t>(recipe.train.seed));
  Regressor net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  data::Sampler sampler(96, 16, true, true, static_cast<std::uint64_t>(recipe.train.seed));
  sampler.start(0, 16);
  Points points(96);
  for (std::int64_t batch = 0; batch < sampler.batches(); ++batch) {
    std::vector<torch::Tensor> inputs, targets;
    for (const std::int64_t index : sampler.share(batch, 0, 1)) {
      const auto sample = points.get(static_cast<std::size_t>(index));
      inputs.push_back(sample.data), targets.push_back(sample.target);
    }
    optimizer.zero_grad();
    const torch::Tensor loss = mean_square(net->forward(torch::stack(inputs)), torch::stack(targets));
    EXPECT_NEAR(loss.item<double>(), run.losses[static_cast<std::size_t>(batch)], 1e-5) << batch;
    loss.backward();
    optimizer.step();
  }
  const Checkpoint saved = newest_good_checkpoint(folder.path()).second;
  for (const auto& item : net->named_parameters())
    EXPECT_TRUE(at::allclose(step::find_saved(saved.tensors, "model." + item.key()), item.value(), 1e-4, 1e-5)) << item.key();
  EXPECT_TRUE(at::allclose(step::find_saved(saved.tensors, "model.norm.running_mean"), net->norm->running_mean, 1e-4, 1e-5));
  EXPECT_EQ(step::find_saved(saved.tensors, "model.shift").item<float>(), 0.25f);
  EXPECT_TRUE(at::equal(step::find_saved(saved.tensors, "model.positions"), net->positions));
  EXPECT_TRUE(at::equal(step::find_saved(saved.tensors, "model.mask"), net->mask)) << "which is not finite";
}

TEST(Workload, ResumesToTheSameBits) {
  for (const char* strategy : {"allreduce", "local_sgd"}) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = strategy, recipe.strategy.period = 3;
    const Folder whole, cut;
    const Trained undisturbed = train(recipe, regression(), 2, whole.path());
    Recipe half = recipe;
    half.train.steps = 7;
    train(half, regression(), 2, cut.path());
    EXPECT_EQ(train(recipe, regression(), 2, cut.path(), true).ended.state_hash, undisturbed.ended.state_hash) << strategy;
  }
}

TEST(Workload, IsResumedByTheProgramThatHasIt) {
  Checkpoint checkpoint;
  checkpoint.network = "two_towers";
  Workload same;
  same.name = "two_towers";
  require_own_program(checkpoint, "runs/a", same);
  EXPECT_THAT(message_of<ConfigError>([&] { require_own_program(checkpoint, "runs/a", {}); }),
              testing::AllOf(testing::HasSubstr("runs/a"), testing::HasSubstr("two_towers"), testing::HasSubstr("--resume")));
  checkpoint.network = "resnet18";
  require_own_program(checkpoint, "runs/a", {});
}

TEST(Workload, SynchronisedBatchNormsSeeTheWholeBatch) {
  Recipe recipe = small_recipe();
  recipe.optim.momentum = 0;
  const Folder alone, together;
  const Trained one = train(recipe, regression(), 1, alone.path());
  recipe.strategy.name = "allreduce", recipe.strategy.batch_norm = "sync";
  const Trained several = train(recipe, regression(), 4, together.path());
  const auto mine = newest_good_checkpoint(together.path()).second, others = newest_good_checkpoint(alone.path()).second;
  for (const NamedTensor& item : others.tensors) {
    if (!item.name.starts_with("model.")) continue;
    EXPECT_TRUE(at::allclose(step::find_saved(mine.tensors, item.name), item.tensor, 1e-3, 1e-5)) << item.name;
  }
  EXPECT_NEAR(several.ended.test_loss, one.ended.test_loss, 1e-4 * one.ended.test_loss);
}

// 112 parameters with their padding, and as many gradients and momenta, of 4 bytes each.
TEST(Workload, AModuleLargerThanTheMemoryIsRefusedWithAStageThatFits) {
  const Folder folder;
  const auto trained_in = [&](double gigabytes, std::int64_t zero, bool one_unit = false) {
    Recipe recipe = small_recipe();
    recipe.optim.momentum = 0.9;
    recipe.train.memory_gb = gigabytes, recipe.parallel.zero = zero;
    train(recipe, regression(/*with_norm=*/one_unit), 2, folder.path());
  };
  EXPECT_THAT(message_of<ConfigError>([&] { trained_in(1e-6, 0); }),
              testing::AllOf(HasSubstr("train.memory_gb"), HasSubstr("2 ranks"), HasSubstr("use parallel.zero=2")));
  EXPECT_NO_THROW(trained_in(1e-6, 2));
  EXPECT_THAT(message_of<ConfigError>([&] { trained_in(1e-8, 2); }), HasSubstr("parallel.zero=3 on more ranks"));
  EXPECT_THAT(message_of<ConfigError>([&] { trained_in(1e-6, 0, /*one_unit=*/true); }), HasSubstr("parallel.zero=2 on more ranks"))
      << "stage 3 would fit, but needs several units";
}

TEST(Workload, WhatACompressorKeepsCountsForAModule) {
  const Folder plain, compressed;
  Recipe recipe = small_recipe();
  recipe.optim.momentum = 0;
  recipe.train.memory_gb = 1e-6;  // parameters and gradients take 896 bytes
  EXPECT_NO_THROW(train(recipe, regression(/*with_norm=*/false), 2, plain.path()));
  recipe.comm.compression = "topk";
  EXPECT_THAT(message_of<ConfigError>([&] { train(recipe, regression(/*with_norm=*/false), 2, compressed.path()); }),
              testing::AllOf(HasSubstr("train.memory_gb"), HasSubstr("use comm.compression=none")));
}

TEST(Workload, TheLargestEntryOfAModuleIsInOneBucket) {
  const Folder small, enough;
  Recipe recipe = small_recipe();
  recipe.optim.momentum = 0, recipe.strategy.bucket_mb = 1e-5;  // the largest entry has 48 of 112 elements
  recipe.comm.compression = "topk", recipe.compress.density = 0.5;
  recipe.train.memory_gb = 1.6e-6;  // 1344 bytes, and the codes of a bucket
  EXPECT_THROW(train(recipe, regression(/*with_norm=*/false), 2, small.path()), ConfigError);
  recipe.train.memory_gb = 2e-6;
  EXPECT_NO_THROW(train(recipe, regression(/*with_norm=*/false), 2, enough.path()));
}

TEST(Workload, RefusesWhatItCannotHave) {
  const Folder folder;
  Recipe recipe = small_recipe();
  recipe.train.gradients = "fp32";
  EXPECT_THAT(message_of<ConfigError>([&] { train(recipe, regression(), 1, folder.path()); }), HasSubstr("train.gradients=fp32"));
  recipe.train.precision = "bf16";
  EXPECT_THAT(message_of<ConfigError>([&] { train(recipe, regression(), 1, folder.path()); }), HasSubstr("train.precision"));
  recipe = small_recipe();
  recipe.train.label_smoothing = 0.1;
  EXPECT_THAT(message_of<ConfigError>([&] { train(recipe, regression(), 1, folder.path()); }), HasSubstr("train.label_smoothing"));
  Workload half = regression();
  half.test = nullptr;
  EXPECT_THAT(message_of<ConfigError>([&] { train(small_recipe(), half, 1, folder.path()); }), HasSubstr("test"));
  Workload summed = regression();
  summed.loss = std::make_shared<nn::FunctionLoss>([](const at::Tensor& a, const at::Tensor& b) { return (a - b).square(); });
  EXPECT_THAT(message_of<ConfigError>([&] { train(small_recipe(), summed, 1, folder.path()); }), HasSubstr("32 values"));
}

class Labelled : public torch::data::datasets::Dataset<Labelled> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    return {torch::full({2, 3}, static_cast<float>(index)), torch::tensor(static_cast<std::int64_t>(index % 2))};
  }
  torch::optional<std::size_t> size() const override { return 5; }
};

TEST(TorchDatasets, OfEveryKindAreRead) {
  const auto plain = dataset_of(Labelled(), {.name = "two", .class_names = {"even", "odd"}});
  const auto stacked = dataset_of(Labelled().map(torch::data::transforms::Stack<>()));
  for (const auto& dataset : {plain, stacked}) {
    EXPECT_EQ(dataset->size(), 5);
    EXPECT_THAT(dataset->info().input, ElementsAre(2, 3));
    EXPECT_TRUE(dataset->info().target.empty());
    EXPECT_FALSE(dataset->info().real_targets);
    data::Batch batch;
    dataset->prepare(batch, 2);
    dataset->read(3, nullptr, batch, 1);
    EXPECT_EQ(batch.inputs[6], 3);
    EXPECT_EQ(batch.targets[1], 1);
  }
  EXPECT_THAT(plain->info().class_names, ElementsAre("even", "odd"));
}

TEST(Workload, KeepsTheNamesOfTheClasses) {
  for (const int workers : {1, 2}) {
    Workload workload;
    workload.name = "classifier";
    workload.model = nn::models_of([] { return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(6, 2)); });
    workload.training = workload.test = dataset_of(Labelled(), {.class_names = {"even", "odd"}});
    Recipe recipe = small_recipe();
    recipe.data.batch = 2;
    const Folder folder;
    const Trained run = train(recipe, workload, workers, folder.path());
    EXPECT_THAT(run.started.class_names, ElementsAre("even", "odd"));
    EXPECT_THAT(newest_good_checkpoint(folder.path()).second.class_names, ElementsAre("even", "odd"));
    EXPECT_TRUE(run.started.shows_accuracy()) << "softmax counts right answers";
  }
}

TEST(TorchDatasets, WithSamplesOfDifferentShapesAreRefusedAtTheFirstOther) {
  const auto uneven = dataset_of(
      [](std::size_t index) {
        return torch::data::Example<>{torch::zeros({static_cast<std::int64_t>(index < 2 ? 4 : 5)}), torch::zeros({})};
      },
      4);
  data::Batch batch;
  uneven->prepare(batch, 1);
  uneven->read(1, nullptr, batch, 0);
  EXPECT_THAT(message_of<ConfigError>([&] { uneven->read(2, nullptr, batch, 0); }), testing::AllOf(HasSubstr("sample 2"), HasSubstr("5")));
}

}  // namespace
}  // namespace paceline::train
