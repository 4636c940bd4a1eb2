// Recipes: those that come along load and fit their networks, and what cannot be is refused with a reason.
#include "paceline/base/text.h"
#include "support.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

data::Info image_info(const std::string& key, std::vector<std::int64_t> shape, std::int64_t classes) {
  data::Info info;
  info.key = key, info.input = std::move(shape), info.classes = classes;
  return info;
}

/// What a dataset would say of itself, without its files.
data::Info info_of(const data::DataConfig& config) {
  if (config.name == "mnist") return image_info("mnist", {1, 28, 28}, 10);
  if (config.name == "cifar10") return image_info("cifar10", {3, 32, 32}, 10);
  if (config.name == "cifar100") return image_info("cifar100", {3, 32, 32}, 100);
  if (config.name == "image_folder") return image_info("image_folder", {3, config.image_size, config.image_size}, 1000);
  if (config.name != "text") return image_info(config.name, config.shape, config.classes);
  data::Info info = image_info("text", {config.context}, 65);
  info.tokens = true;
  return info;
}

TEST(Recipes, AllThatComeAlongLoadAndBuild) {
#if !PACELINE_WITH_TOML
  GTEST_SKIP() << "built without a TOML reader";
#endif
  const auto folder = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "recipes";
  int found = 0;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    if (item.path().extension() != ".toml") continue;
    SCOPED_TRACE(item.path().string());
    Recipe recipe;
    Config config = recipe.config();
    ASSERT_NO_THROW(config.load(item.path()));
    EXPECT_NO_THROW(validate(recipe));
    EXPECT_GT(graph_for(recipe.model, info_of(recipe.data)).parameter_count(), 0);
    ++found;
  }
  EXPECT_GE(found, 3);
}

TEST(Recipes, TheDemonstrationNeedsNoFile) {
  const Recipe recipe = Recipe::demonstration();
  EXPECT_NO_THROW(validate(recipe));
  EXPECT_TRUE(recipe.data.root.empty());
  EXPECT_GT(graph_for(recipe.model, info_of(recipe.data)).parameter_count(), 0);
}

TEST(Recipes, TheResolvedRecipeReadsBackAsItself) {
#if !PACELINE_WITH_TOML
  GTEST_SKIP() << "built without a TOML reader";
#endif
  Recipe written = Recipe::demonstration(), read;
  written.config().set("schedule.milestones=[1, 2.5]");
  written.config().set("train.name=a \"quoted\" name");
  written.optim.rate = 0.1 + 0.2;  // all digits count
  read.config().load_text(written.config().toml(), "test");
  EXPECT_EQ(read.config().toml(), written.config().toml());
  EXPECT_EQ(read.optim.rate, written.optim.rate);
}

TEST(Recipes, LabelSmoothingIsAShare) {
  Recipe recipe;
  for (const char* bad : {"train.label_smoothing=1.5", "train.label_smoothing=-0.1", "train.label_smoothing=nan"})
    EXPECT_THAT(message_of<ConfigError>([&] { recipe.config().set(bad); }), HasSubstr("train.label_smoothing")) << bad;
  EXPECT_NO_THROW(recipe.config().set("train.label_smoothing=0.1"));
  EXPECT_EQ(recipe.train.label_smoothing, 0.1);
}

std::string refused(const std::function<void(Recipe&)>& change) {
  Recipe recipe = tiny_recipe();
  change(recipe);
  return message_of<ConfigError>([&] { validate(recipe); });
}

TEST(Validate, RefusesWhatAProgramWritesOutOfRange) {
  EXPECT_THAT(refused([](Recipe& r) { r.train.keep = 0; }), HasSubstr("train.keep must be at least 1"));
  EXPECT_THAT(refused([](Recipe& r) { r.train.micro_batches = 0; }), HasSubstr("train.micro_batches"));
  EXPECT_THAT(refused([](Recipe& r) { r.optim.rate = -1; }), HasSubstr("optim.rate"));
  EXPECT_THAT(refused([](Recipe& r) { r.data.residency = "gpu"; }), HasSubstr("data.residency"));
  EXPECT_THAT(refused([](Recipe& r) { r.schedule.milestones = {-1}; }), HasSubstr("schedule.milestones"));
}

/// A way to share a batch of 16 among so many micro-batches.
struct Shared {
  const char *settings, *remedy, *says;
};

TEST(Validate, RefusesMoreMicroBatchesThanSamples) {
  for (const Shared& shared : std::vector<Shared>{
           {"train.micro_batches=17", "train.micro_batches=16", "data.batch=16"},
           {"parallel.workers=4 train.micro_batches=5", "train.micro_batches=4", "4 workers"},
           {"parallel.data=4 train.micro_batches=5", "train.micro_batches=4", "4 samples"},
           {"parallel.data=4 parallel.tensor=2 parallel.workers=8 train.micro_batches=8", "train.micro_batches=4", "4 groups of workers"},
           {"parallel.data=4 parallel.pipeline=2 train.micro_batches=5", "train.micro_batches=4", "4 pipelines"},
           {"parallel.workers=4 strategy.name=local_sgd train.micro_batches=5", "train.micro_batches=4", "4 workers"},
           {"parallel.workers=4 strategy.name=asgd train.micro_batches=5", "train.micro_batches=4", "4 workers"},
           {"parallel.data=3 data.uneven=weight train.micro_batches=6", "train.micro_batches=5", "5 samples"},
           {"parallel.data=3 data.uneven=pad train.micro_batches=7", "train.micro_batches=6", "6 samples"},
           {"parallel.data=3 train.micro_batches=6", "data.batch=18", "5 samples"},
           {"parallel.data=32 data.uneven=weight train.micro_batches=2", "train.micro_batches=1", "0 samples"}}) {
    Recipe recipe = tiny_recipe();
    for (const std::string& setting : split(shared.settings, ' ')) recipe.config().set(setting);
    EXPECT_THAT(message_of<ConfigError>([&] { validate(recipe); }),
                AllOf(HasSubstr("train.micro_batches="), HasSubstr(shared.says), HasSubstr(std::string("use ") + shared.remedy)))
        << shared.settings;
    recipe.config().set(shared.remedy);
    EXPECT_NO_THROW(validate(recipe)) << shared.settings << ' ' << shared.remedy;
  }
}

TEST(Validate, RefusesWhatNoSingleFieldCanSee) {
  EXPECT_THAT(refused([](Recipe& r) {
                r.parallel.workers = 2;
                r.strategy.name = "single";
              }),
              AllOf(HasSubstr("parallel.workers=2"), HasSubstr("single")));
  EXPECT_THAT(refused([](Recipe& r) { r.parallel.workers = 4, r.parallel.tensor = 3; }),
              AllOf(HasSubstr("tensor=3"), HasSubstr("4 ranks"), HasSubstr("tensor=4")));
  EXPECT_THAT(refused([](Recipe& r) { r.parallel.workers = 2, r.parallel.tensor = 2, r.strategy.name = "local_sgd"; }),
              AllOf(HasSubstr("parallel.tensor"), HasSubstr("local_sgd"), HasSubstr("allreduce")));
  EXPECT_THAT(refused([](Recipe& r) { r.parallel.workers = 2, r.parallel.zero = 1, r.strategy.name = "asgd"; }),
              AllOf(HasSubstr("parallel.zero=1"), HasSubstr("asgd")));
  EXPECT_THAT(refused([](Recipe& r) { r.parallel.workers = 4, r.parallel.pipeline = 2, r.strategy.name = "asgd"; }),
              AllOf(HasSubstr("parallel.pipeline=2"), HasSubstr("asgd"), Not(HasSubstr("parallel.tensor"))));
  EXPECT_THAT(refused([](Recipe& r) { r.parallel.workers = 3; }), AllOf(HasSubstr("data.batch=15 or 18"), HasSubstr("data.uneven=pad")));
  EXPECT_THAT(refused([](Recipe& r) {
                r.optim.nesterov = true;
                r.optim.momentum = 0;
              }),
              HasSubstr("nesterov"));
  EXPECT_THAT(refused([](Recipe& r) { r.schedule.name = "multi_step"; }), HasSubstr("milestones"));
  EXPECT_THAT(refused([](Recipe& r) { r.schedule.points_epoch = {0, 1}; }), HasSubstr("points_factor"));
}

TEST(GraphFor, RefusesTokensWhereNothingReadsThem) {
  data::Info text = image_info("text", {16}, 65);
  text.tokens = true;
  graph::ModelConfig model;
  model.network = "mlp";
  EXPECT_THAT(message_of<ConfigError>([&] { graph_for(model, text); }), AllOf(HasSubstr("'mlp'"), HasSubstr("model.network=gpt")));
}

TEST(GraphFor, TakesFromTheDatasetWhatTheRecipeLeavesOpen) {
  graph::ModelConfig model;
  model.network = "mlp";
  const graph::Graph graph = graph_for(model, image_info("x", {2, 3, 5}, 7));
  EXPECT_EQ(graph.input(), (graph::Shape{2, 3, 5}));
  EXPECT_EQ(graph.output(), graph::Shape{7});
  model.classes = 12;  // more than the dataset has is allowed: weights of a larger task
  EXPECT_EQ(graph_for(model, image_info("x", {2, 3, 5}, 7)).output(), graph::Shape{12});
}

}  // namespace
}  // namespace paceline::train
