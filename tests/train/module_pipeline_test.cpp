// A user's module in a pipeline: a sequence, and one whose blocks are listed, train to what one worker makes of them.
#include <fmt/format.h>
#include <torch/nn.h>

#include "paceline/schedule/pipeline.h"
#include "runs.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Blocks with a skip connection and a batch norm, the first of them with a frozen weight, all with a table and a number of their own.
struct TowerImpl : torch::nn::Module {
  static constexpr int kBlocks = 5;

  TowerImpl() {
    for (int i = 0; i < kBlocks; ++i) {
      torch::nn::Sequential block(torch::nn::Linear(i == 0 ? 64 : 10, 10), torch::nn::BatchNorm1d(10), torch::nn::Tanh());
      block->register_buffer("table", torch::full({3, 40}, static_cast<float>(i)));
      block->register_buffer("number", torch::tensor(static_cast<float>(i)));
      parts.push_back(register_module("block" + std::to_string(i), block));
    }
    head = register_module("head", torch::nn::Linear(10, 10));
    parts[0]->ptr<torch::nn::LinearImpl>(0)->bias.set_requires_grad(false);
  }
  std::vector<nn::ModuleModel::Block> blocks() {
    std::vector<nn::ModuleModel::Block> listed;
    for (int i = 0; i < kBlocks; ++i)
      listed.push_back({"block" + std::to_string(i), [block = parts[static_cast<std::size_t>(i)].get(), i](const at::Tensor& x) {
                          return i == 0 ? block->forward(x.flatten(1)) : x + block->forward(x);
                        }});
    listed.push_back({"head", [this](const at::Tensor& x) { return head->forward(x); }});
    return listed;
  }

  std::vector<torch::nn::Sequential> parts;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Tower);

Workload tower() {
  return {.name = "tower", .model = nn::models_of([] { return Tower(); })};
}

Workload sequence() {
  return {.name = "sequence", .model = nn::models_of([] {
                                torch::nn::Sequential layers(torch::nn::Flatten(), torch::nn::Linear(64, 16));
                                for (int i = 0; i < 7; ++i) {
                                  layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(i % 2 == 0)));  // every other one in place
                                  layers->push_back(torch::nn::Linear(16, i == 6 ? 10 : 16));
                                }
                                return layers;
                              })};
}

/// A module of a single unit.
Workload whole() {
  return {.name = "whole", .model = nn::models_of([] {
                             struct NetImpl : torch::nn::Module {
                               NetImpl() { layer = register_module("layer", torch::nn::Linear(64, 10)); }
                               at::Tensor forward(const at::Tensor& x) { return layer(x.flatten(1)); }
                               torch::nn::Linear layer{nullptr};
                             };
                             return std::make_shared<NetImpl>();
                           })};
}

Recipe module_recipe() {
  Recipe recipe = tiny_recipe();
  recipe.train.micro_batches = 4, recipe.train.epochs = 2;
  recipe.data.drop_last = false, recipe.data.train_samples -= 4;  // the last batch has 12
  return recipe;
}

std::map<std::string, at::Tensor> model_in(const std::filesystem::path& folder) {
  std::map<std::string, at::Tensor> tensors;
  const auto found = newest_good_checkpoint(folder).second.tensors;
  for (const NamedTensor& item : found)
    if (item.name.starts_with("model.")) tensors[item.name] = step::find_saved(found, item.name).clone();
  return tensors;
}

void expect_alike(const std::filesystem::path& folder, const std::filesystem::path& alone, const std::string& what) {
  const auto found = model_in(folder), expected = model_in(alone);
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name << ", " << what;
    EXPECT_TRUE(at::allclose(found.at(name), tensor, 1e-5, 1e-6)) << name << ", " << what;
  }
}

TEST(ModulePipeline, TrainsToTheParametersOfOneWorker) {
  for (const Workload& workload : {tower(), sequence()}) {
    const Folder alone;
    Recipe recipe = module_recipe();
    const observe::RunEnded expected = run_in(alone.path(), recipe, false, 0, workload);
    for (const auto& row : schedule::pipelines())
      for (const int stages : {2, 4}) {
        if (row.make.interleaved && stages == 4 && workload.name == "tower") continue;  // has six units
        recipe.parallel.pipeline = stages, recipe.parallel.schedule = row.key;
        const std::string what = fmt::format("{}, {} stages, {}", workload.name, stages, row.key);
        const Folder folder;
        const observe::RunEnded ended = run_in(folder.path(), recipe, false, 0, workload);
        EXPECT_EQ(ended.steps, expected.steps) << what;
        EXPECT_NEAR(ended.train_loss, expected.train_loss, 1e-5) << what;
        EXPECT_NEAR(ended.test_loss, expected.test_loss, 1e-5) << what;
        expect_alike(folder.path(), alone.path(), what);
      }
  }
}

TEST(ModulePipeline, StandsBesideDataParallelismAndZero) {
  Recipe recipe = module_recipe();
  recipe.data.uneven = "weight", recipe.train.micro_batches = 2, recipe.optim.clip_norm = 1;
  const Folder alone;
  run_in(alone.path(), recipe, false, 0, sequence());
  recipe.parallel.data = 2, recipe.parallel.pipeline = 2;
  for (const int zero : {0, 1, 2, 3})
    for (const char* recompute : {"none", "units"}) {
      recipe.parallel.zero = zero, recipe.train.recompute = recompute;
      const Folder folder;
      run_in(folder.path(), recipe, false, 0, sequence());
      const auto found = model_in(folder.path()), expected = model_in(alone.path());
      for (const auto& [name, tensor] : expected)
        EXPECT_TRUE(at::allclose(found.at(name), tensor, 1e-3, 1e-4)) << name << ", ZeRO " << zero << ", recompute " << recompute;
    }
}

TEST(ModulePipeline, ItsCheckpointIsReadByOneWorkerAndTheOtherWayRound) {
  Recipe recipe = module_recipe();
  const Folder alone;
  run_in(alone.path(), recipe, false, 0, tower());
  for (const std::int64_t first : {1, 2}) {
    const Folder folder;
    recipe.parallel.pipeline = first;
    run_in(folder.path(), recipe, /*resume=*/false, /*stop_after=*/4, tower());
    recipe.parallel.pipeline = 3 - first;
    run_in(folder.path(), recipe, /*resume=*/true, 0, tower());
    expect_alike(folder.path(), alone.path(), fmt::format("first {} stages", first));
  }
}

TEST(ModulePipeline, EachWorkersNormsAreResumed) {  // of which a rank has those of its stage
  Recipe recipe = module_recipe();
  recipe.data.uneven = "weight", recipe.train.micro_batches = 2;  // of three samples at least: a norm needs two
  recipe.parallel.data = 2, recipe.parallel.pipeline = 2;
  const Folder whole, cut;
  const observe::RunEnded undisturbed = run_in(whole.path(), recipe, false, 0, tower());
  run_in(cut.path(), recipe, /*resume=*/false, /*stop_after=*/4, tower());
  EXPECT_EQ(run_in(cut.path(), recipe, /*resume=*/true, 0, tower()).state_hash, undisturbed.state_hash);
}

TEST(ModulePipeline, MeasuredCostsTrainTheSame) {
  Recipe recipe = module_recipe();
  const Folder alone;
  run_in(alone.path(), recipe, false, 0, tower());
  recipe.parallel.pipeline = 2, recipe.parallel.costs = "measured";
  const Folder folder;
  run_in(folder.path(), recipe, false, 0, tower());
  expect_alike(folder.path(), alone.path(), "measured");
}

/// Two blocks that multiply by the same matrix.
struct SharingImpl : torch::nn::Module {
  struct Part : torch::nn::Module {
    explicit Part(const at::Tensor& given) : weight(register_parameter("weight", given)) {}
    at::Tensor weight;
  };
  SharingImpl() {
    const at::Tensor weight = torch::eye(64);
    for (const char* name : {"one", "two"}) parts.push_back(register_module(name, std::make_shared<Part>(weight)));
  }
  std::vector<nn::ModuleModel::Block> blocks() {
    const auto times = [](Part* part) { return [part](const at::Tensor& x) { return x.flatten(1).mm(part->weight); }; };
    return {{"one", times(parts[0].get())}, {"two", times(parts[1].get())}};
  }
  std::vector<std::shared_ptr<Part>> parts;
};

// A unit goes back by itself: the gradient would be that of one of its two uses.
TEST(ModulePipeline, AWeightOfTwoBlocksIsRefused) {
  EXPECT_THAT(message_of<ConfigError>([] { nn::model_of(std::make_shared<SharingImpl>()); }),
              AllOf(HasSubstr("one.weight"), HasSubstr("two.weight")));
}

TEST(ModulePipeline, WhatCannotBeCutIsRefused) {
  const auto refusal = [](const Workload& workload, int stages) {
    Recipe recipe = module_recipe();
    recipe.parallel.pipeline = stages;
    return message_of<ConfigError>([&] {
      const Folder folder;
      run_in(folder.path(), recipe, false, 0, workload);
    });
  };
  EXPECT_THAT(refusal(tower(), 8),
              AllOf(HasSubstr("parallel.pipeline=8"), HasSubstr("6 units"), HasSubstr("--mesh data=2,pipeline=4,tensor=1")));
  EXPECT_THAT(refusal(whole(), 2), AllOf(HasSubstr("1 unit"), HasSubstr("--mesh data=2,pipeline=1,tensor=1")));
}

TEST(ModulePipeline, Zero3OfASingleUnitIsRefusedBeforeTheStart) {
  Recipe recipe = module_recipe();
  recipe.parallel.workers = 2, recipe.parallel.zero = 3;
  const auto construct = [&] {
    observe::Bus bus;
    const SteadyClock clock;
    const std::atomic<bool> stop = false;
    const Workers workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop, .workload = whole()});
  };
  EXPECT_THAT(message_of<ConfigError>(construct),
              AllOf(HasSubstr("parallel.zero=3"), HasSubstr("module"), HasSubstr("nn::ModuleModel"), HasSubstr("parallel.zero=2")));
  recipe.parallel.zero = 2;  // as advised
  const Folder alone, folder;
  run_in(folder.path(), recipe, false, 0, whole());
  recipe.parallel.workers = 1, recipe.parallel.zero = 0;
  run_in(alone.path(), recipe, false, 0, whole());
  expect_alike(folder.path(), alone.path(), "stage 2");
}

}  // namespace
}  // namespace paceline::train
