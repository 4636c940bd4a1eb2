// A module, a loss and datasets of a user's in the Trainer: with every strategy, and equal to one worker where that is synchronous.
#include "paceline/train/workload.h"

#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "paceline/strategies/registry.h"
#include "paceline/train/torch_dataset.h"
#include "paceline/train/workers.h"
#include "tests/train/support.h"

namespace paceline::train {
namespace {

namespace F = torch::nn::functional;
using testing::ElementsAre;
using testing::HasSubstr;

/// A regression with a batch norm, and a constant of its own among the buffers.
struct RegressorImpl : torch::nn::Module {
  RegressorImpl() {
    first = register_module("first", torch::nn::Linear(4, 12));
    norm = register_module("norm", torch::nn::BatchNorm1d(12));
    last = register_module("last", torch::nn::Linear(12, 2));
    shift = register_buffer("shift", torch::full({1}, 0.25));
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(norm(first(x)))) + shift; }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor shift;
};
TORCH_MODULE(Regressor);

class Points : public torch::data::datasets::Dataset<Points> {
 public:
  explicit Points(std::size_t count) : count_(count) {}
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor x = torch::sin(torch::arange(4) * 1.7 + static_cast<double>(index) * 0.61);
    return {x, torch::stack({x.sum() * 0.5, x[0] * x[1]})};
  }
  torch::optional<std::size_t> size() const override { return count_; }

 private:
  std::size_t count_;
};

torch::Tensor mean_square(const torch::Tensor& output, const torch::Tensor& targets) { return F::mse_loss(output, targets); }

Workload regression(bool with_norm = true) {
  Workload workload;
  workload.name = "regressor";
  if (with_norm) workload.model = nn::models_of([] { return Regressor(); });
  else
    workload.model =
        nn::models_of([] { return torch::nn::Sequential(torch::nn::Linear(4, 12), torch::nn::Tanh(), torch::nn::Linear(12, 2)); });
  const auto distance = [](const torch::Tensor& output, const torch::Tensor& targets) { return (output - targets).abs().mean(); };
  workload.loss = std::make_shared<nn::FunctionLoss>(mean_square, std::vector<nn::FunctionLoss::Metric>{{"distance", distance}});
  workload.training = dataset_of(Points(96), {.name = "points"}), workload.test = dataset_of(Points(32), {.name = "points"});
  return workload;
}

Recipe small_recipe() {
  Recipe recipe;
  recipe.data.batch = 16;
  recipe.optim.rate = 0.05;
  recipe.train.epochs = 2;
  recipe.train.device = "cpu";
  recipe.schedule.name = "constant";
  return recipe;
}

struct Told final : observe::Listener {
  void on(const observe::Event& event) override {
    if (const auto* started = std::get_if<observe::RunStarted>(&event)) start = *started;
    if (const auto* step = std::get_if<observe::StepDone>(&event)) losses.push_back(step->loss), accuracies.push_back(step->accuracy);
  }
  observe::RunStarted start;
  std::vector<double> losses, accuracies;
};

struct Trained {
  observe::RunEnded ended;
  observe::RunStarted started;
  std::vector<double> losses, accuracies;
};

Trained train(const Recipe& recipe, const Workload& workload, int workers, const std::filesystem::path& folder, bool resumes = false) {
  Recipe shared = recipe;
  shared.parallel.workers = workers;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  observe::Bus bus;
  auto listener = std::make_unique<Told>();
  const Told& told = *listener;
  bus.add(std::move(listener));
  Workers all(shared, comm::World{}, {.bus = bus, .clock = clock, .stop = stop, .resumes = resumes, .workload = workload});
  if (resumes) {
    const auto [file, checkpoint] = newest_good_checkpoint(folder);
    all.resume(checkpoint, file.string());
  }
  Trained result;
  result.ended = all.run(folder);
  result.started = told.start, result.losses = told.losses, result.accuracies = told.accuracies;
  return result;
}

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
}

/// Of a third of the steps.
double mean_of_first(const std::vector<double>& losses) {
  const auto third = losses.size() / 3;
  return std::accumulate(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(third), 0.0) / static_cast<double>(third);
}
double mean_of_last(std::vector<double> losses) {
  std::ranges::reverse(losses);
  return mean_of_first(losses);
}

class EveryStrategy : public testing::TestWithParam<std::string> {};

TEST_P(EveryStrategy, TrainsAUsersModule) {
  const std::set<std::string> synchronous = {"allreduce", "ssgd", "single"};
  for (const bool with_norm : {true, false}) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = GetParam(), recipe.strategy.period = 2;
    recipe.train.epochs = 12;
    recipe.optim.momentum = 0, recipe.optim.rate = GetParam() == "diloco" ? 0.02 : 0.1;  // whose outer step makes it seven times as much
    const Folder folder, alone;
    const int workers = GetParam() == "single" ? 1 : 2;
    const Trained run = train(recipe, regression(with_norm), workers, folder.path());
    EXPECT_TRUE(std::isfinite(run.ended.test_loss));
    EXPECT_LT(mean_of_last(run.losses), 0.95 * mean_of_first(run.losses)) << "it learns";
    if (with_norm || !synchronous.contains(GetParam())) continue;  // batches of norms are each worker's own
    recipe.strategy.name = "single";
    const Trained one = train(recipe, regression(with_norm), 1, alone.path());
    EXPECT_NEAR(run.ended.test_loss, one.ended.test_loss, 1e-5 * one.ended.test_loss + 1e-7);
    const auto mine = newest_good_checkpoint(folder.path()).second, others = newest_good_checkpoint(alone.path()).second;
    for (const NamedTensor& item : others.tensors) {
      if (!item.name.starts_with("model.")) continue;
      EXPECT_TRUE(at::allclose(step::find_saved(mine.tensors, item.name), item.tensor, 1e-4, 1e-6)) << item.name;
    }
  }
}

std::vector<std::string> names_of_strategies() {
  std::vector<std::string> names;
  for (const auto& entry : strategies::strategies()) names.emplace_back(entry.key);
  return names;
}
INSTANTIATE_TEST_SUITE_P(, EveryStrategy, testing::ValuesIn(names_of_strategies()), [](const auto& row) { return row.param; });

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

TEST(Workload, IsTrainedWithEveryCompressor) {
  for (const auto& compressor : compress::compressors()) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = "allreduce", recipe.comm.compression = compressor.key, recipe.train.epochs = 8, recipe.optim.rate = 0.01;
    const Folder folder;
    const Trained run = train(recipe, regression(), 2, folder.path());
    EXPECT_LT(mean_of_last(run.losses), mean_of_first(run.losses)) << compressor.key;
  }
}

TEST(Workload, IsTrainedWithEveryOptimizer) {
  for (const auto& optimizer : optim::optimizers()) {
    Recipe recipe = small_recipe();
    recipe.strategy.name = "allreduce", recipe.optim.name = optimizer.key;
    recipe.optim.rate = optimizer.key == "rmsprop" ? 0.001 : 0.01;  // whose steps are as long as momentum makes them: ten rates
    const Folder folder;
    const Trained run = train(recipe, regression(), 2, folder.path());
    EXPECT_LT(mean_of_last(run.losses), mean_of_first(run.losses)) << optimizer.key;
  }
}

TEST(Workload, RefusesWhatItCannotHave) {
  const Folder folder;
  Recipe recipe = small_recipe();
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
