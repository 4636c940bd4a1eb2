// Runs whose data-parallel workers share fully connected layers: the parameters and the curve of one worker, or of plain data parallelism.
#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/linear.h>

#include "paceline/graph/hybrid.h"
#include "paceline/train/workload.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Recipe hybrid_recipe(const std::string& network, std::int64_t workers, const std::string& hybrid) {
  Recipe recipe = tiny_recipe();
  recipe.model.network = network, recipe.data.classes = 8;
  recipe.data.train_samples = 160, recipe.data.test_samples = 35, recipe.train.epochs = 2;
  recipe.optim.rate = 0.01, recipe.optim.weight_decay = 1e-4, recipe.optim.clip_norm = 5;
  recipe.train.evaluate_every = 0;
  recipe.parallel.data = workers, recipe.parallel.hybrid = hybrid;
  if (network == "mlp") {
    recipe.model.hidden = {16, 12, 16};
  } else {
    recipe.data.shape = network == "vgg16" ? std::vector<std::int64_t>{3, 20, 20} : std::vector<std::int64_t>{3, 16, 16};
    recipe.model.multiplier = 0.125, recipe.model.dropout = network == "cnn" ? -1 : 0, recipe.optim.rate = 1e-3;
  }
  return recipe;
}

struct HybridRun {
  observe::RunEnded end;
  std::vector<NamedTensor> model;  // what the checkpoint has of it, whole
  std::vector<std::string> header;
};

HybridRun run_hybrid(const Recipe& recipe) {
  const Folder folder;
  HybridRun run;
  observe::Bus bus;
  bus.add(std::make_unique<On<observe::RunStarted>>([&](const observe::RunStarted& start) { run.header = start.mesh; }));
  const SteadyClock clock;
  std::atomic<bool> stop = false;
  run.end = Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop}).run(folder.path());
  const auto tensors = newest_good_checkpoint(folder.path()).second.tensors;
  for (const NamedTensor& item : tensors)
    if (item.name.starts_with("model.") && step::saved_shape(run.model, item.name) == std::nullopt)
      run.model.push_back({item.name, step::find_saved(tensors, item.name).clone()});
  return run;
}

void expect_same(const HybridRun& found, const HybridRun& expected, const std::string& what) {
  constexpr double kRelative = 1e-5, kSmallest = 0.01;  // biases begin at zero
  EXPECT_EQ(found.end.steps, expected.end.steps) << what;
  EXPECT_EQ(found.end.samples, expected.end.samples) << what;
  EXPECT_NEAR(found.end.train_loss, expected.end.train_loss, kRelative * expected.end.train_loss) << what;
  EXPECT_NEAR(found.end.test_loss, expected.end.test_loss, kRelative * expected.end.test_loss) << what;
  EXPECT_EQ(found.end.test_accuracy, expected.end.test_accuracy) << what;
  ASSERT_EQ(found.model.size(), expected.model.size()) << what;
  for (const NamedTensor& item : expected.model) {
    const at::Tensor here = step::saved_or_none(found.model, item.name);
    ASSERT_TRUE(here.defined()) << item.name << ", " << what;
    const double norm = item.tensor.norm().item<double>(), difference = (here - item.tensor).norm().item<double>();
    EXPECT_LE(difference, kRelative * std::max(norm, kSmallest)) << item.name << ", " << what;
  }
}

class HybridRuns : public testing::TestWithParam<std::string> {};

TEST_P(HybridRuns, TrainToTheParametersOfOneWorker) {
  const std::string& network = GetParam();
  const HybridRun alone = run_hybrid(hybrid_recipe(network, 1, "none"));
  const std::string names = network == "mlp" || network == "cnn" ? "fc*" : "classifier*";
  for (const auto& [workers, hybrid] : {std::pair{2, names}, {4, names}, {4, std::string("auto")}}) {
    Recipe recipe = hybrid_recipe(network, workers, hybrid);
    recipe.parallel.zero = workers == 4 ? 1 : 0;
    if (workers == 2) recipe.strategy.overlap = "on", recipe.strategy.bucket_mb = 0.001;  // gradients beside what the pass sends
    const HybridRun run = run_hybrid(recipe);
    expect_same(run, alone, fmt::format("{} workers, {}", workers, hybrid));
    EXPECT_THAT(fmt::format("{}", fmt::join(run.header, " ")), AllOf(HasSubstr("hybrid"), HasSubstr("activations")));
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, HybridRuns, testing::Values("mlp", "cnn"), [](const auto& each) { return each.param; });
INSTANTIATE_TEST_SUITE_P(Slow, HybridRuns, testing::Values("vgg16", "alexnet"), [](const auto& each) { return each.param; });

// The last batch has two samples for four workers, some of them in two micro-batches of one.
TEST(HybridWorkers, WithoutSamplesTakePart) {
  const auto ragged = [](std::int64_t workers, const std::string& hybrid) {
    Recipe recipe = hybrid_recipe("mlp", workers, hybrid);
    recipe.data.train_samples = 16 * 4 + 2, recipe.data.drop_last = false, recipe.data.uneven = "weight", recipe.train.epochs = 3;
    return recipe;
  };
  const HybridRun alone = run_hybrid(ragged(1, "none"));
  for (const std::int64_t zero : {0, 1, 2, 3})
    for (const std::string recompute : {"none", "units", "all"}) {
      Recipe recipe = ragged(4, "fc*");
      recipe.parallel.zero = zero, recipe.train.recompute = recompute, recipe.train.micro_batches = zero % 2 == 0 ? 2 : 1;
      expect_same(run_hybrid(recipe), alone, fmt::format("zero {}, recompute {}", zero, recompute));
    }
}

TEST(HybridWorkers, DropsWhatDataParallelWorkersDrop) {
  for (const auto& [network, names] : {std::pair{"mlp", "fc*"}, {"alexnet", "classifier*"}}) {
    Recipe recipe = hybrid_recipe(network, 4, "none");
    recipe.model.dropout = 0.3, recipe.train.micro_batches = 2;
    if (network == std::string("alexnet")) recipe.train.steps = 4;
    const HybridRun plain = run_hybrid(recipe);
    recipe.parallel.hybrid = names;
    expect_same(run_hybrid(recipe), plain, network);
  }
}

TEST(HybridWorkers, NormsAreThoseOfWholeTensors) {
  for (const char* optimizer : {"adamw", "lars", "lamb"}) {
    Recipe recipe = hybrid_recipe("cnn", 1, "none");
    recipe.optim.name = optimizer, recipe.optim.clip_norm = 0.2, recipe.train.steps = 8;
    const HybridRun alone = run_hybrid(recipe);
    recipe.parallel.data = 2, recipe.parallel.hybrid = "fc*";
    expect_same(run_hybrid(recipe), alone, optimizer);
  }
}

TEST(HybridWorkers, StoreAndComputeInSixteenBits) {
  for (const auto& [storage, precision] : {std::pair{"bf16", "fp32"}, {"fp16", "fp32"}, {"fp32", "bf16"}}) {
    Recipe recipe = hybrid_recipe("cnn", 2, "none");
    recipe.train.storage = storage, recipe.train.precision = precision;
    const observe::RunEnded plain = run_hybrid(recipe).end;
    recipe.parallel.hybrid = "fc*";
    const observe::RunEnded end = run_hybrid(recipe).end;
    EXPECT_NEAR(end.train_loss, plain.train_loss, 0.01 * plain.train_loss) << storage << ' ' << precision;
    EXPECT_EQ(end.skipped_steps, plain.skipped_steps);
  }
}

TEST(HybridWorkers, CheckpointsDoNotKnowOfIt) {
  const auto half = [](std::int64_t workers, const std::string& hybrid) {
    Recipe recipe = hybrid_recipe("mlp", workers, hybrid);
    recipe.optim.name = "adamw";
    return recipe;
  };
  const observe::RunEnded straight = train(half(1, "none"));
  for (const auto& [first, second] : {std::pair{half(4, "fc*"), half(2, "none")},
                                      {half(2, "none"), half(4, "fc*")},
                                      {half(4, "fc*"), half(2, "fc2,fc3")},
                                      {half(2, "fc*"), half(1, "none")}}) {
    const Folder folder;
    run_in(folder.path(), first, false, 7);
    const observe::RunEnded end = run_in(folder.path(), second, true);
    EXPECT_EQ(end.steps, straight.steps);
    EXPECT_NEAR(end.test_loss, straight.test_loss, 1e-5 * straight.test_loss);
    EXPECT_EQ(end.test_accuracy, straight.test_accuracy);
  }
}

TEST(HybridWorkers, SendsTheBytesThatAreCounted) {
  Recipe recipe = hybrid_recipe("cnn", 4, "none");
  recipe.strategy.update = "whole";
  const double plain = run_hybrid(recipe).end.communication->bytes_per_step;
  recipe.parallel.hybrid = "auto";
  const HybridRun run = run_hybrid(recipe);
  const data::Info info = make_datasets(recipe).training->info();
  const graph::Graph graph = graph_for(recipe.model, info);
  const graph::HybridBytes bytes = graph::hybrid_bytes(graph, graph::hybrid_split(graph, "auto", 4, recipe.data.batch));
  EXPECT_GT(bytes.activations, 0);
  EXPECT_LT(bytes.activations, bytes.gradients);
  // Buckets count the padding between entries too.
  EXPECT_NEAR(plain - run.end.communication->bytes_per_step, static_cast<double>(bytes.gradients - bytes.activations), 0.01 * plain);
}

TEST(HybridWorkers, AWorkerThatDivergesIsFoundOut) {
  Recipe recipe = hybrid_recipe("mlp", 4, "fc*");
  recipe.optim.rate = 1e20, recipe.optim.clip_norm = 0;
  EXPECT_THAT(message_of<Diverged>([&] { run_hybrid(recipe); }), AllOf(HasSubstr("loss"), HasSubstr("layer")));
}

TEST(HybridWorkers, RefusesWhatCannotBe) {
  const auto refusal = [](const std::function<void(Recipe&)>& change) {
    Recipe recipe = hybrid_recipe("mlp", 2, "fc*");
    change(recipe);
    return message_of<ConfigError>([&] { run_hybrid(recipe); });
  };
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.tensor = 2; }),
              AllOf(HasSubstr("parallel.hybrid"), HasSubstr("parallel.tensor=2"), HasSubstr("--mesh data=4,pipeline=1,tensor=1")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.pipeline = 2, recipe.train.micro_batches = 2; }),
              AllOf(HasSubstr("parallel.hybrid"), HasSubstr("parallel.pipeline=2"), HasSubstr("--mesh data=4,pipeline=1,tensor=1")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.strategy.name = "local_sgd"; }),
              AllOf(HasSubstr("parallel.hybrid"), HasSubstr("strategy.name=allreduce")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.comm.compression = "topk"; }),
              AllOf(HasSubstr("parallel.hybrid"), HasSubstr("comm.compression=topk")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.hybrid = "fc8"; }), AllOf(HasSubstr("parallel.hybrid=fc8"), HasSubstr("'fc8'")));
  EXPECT_THAT(refusal([](Recipe& recipe) { recipe.parallel.data = 1, recipe.parallel.hybrid = "relu_1"; }), HasSubstr("relu"));

  Recipe recipe = hybrid_recipe("mlp", 2, "auto");
  Workload workload;
  workload.model = nn::models_of([] { return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 8)); });
  observe::Bus bus;
  const SteadyClock clock;
  std::atomic<bool> stop = false;
  const Folder folder;
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { Workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop, .workload = workload}).run(folder.path()); }),
              AllOf(HasSubstr("parallel.hybrid=auto"), HasSubstr("module")));
}

}  // namespace
}  // namespace paceline::train
