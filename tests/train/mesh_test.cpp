// Every mesh of up to eight ranks, every pipeline schedule, every stage of ZeRO, with and without recomputation and accumulation, trains a
// network to the parameters of one worker.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>

#include "paceline/schedule/pipeline.h"
#include "runs.h"

namespace paceline::train {
namespace {

constexpr double kTolerance = 1e-5;  // relative, of every tensor's norm, after 20 steps in fp32
constexpr double kLeastNorm = 0.01;  // biases begin at zero, and some of them stay there but for rounding
// The same of all parameters together, where they and their gradients are stored in 16 bits: sums in another order round otherwise, by up
// to 2⁻⁹ of an element in bf16 and 2⁻¹² in fp16.
constexpr double kTolerance_bf16 = 1e-3, kTolerance_fp16 = 2e-4;

/// A way to share the training of a network.
struct Way {
  comm::MeshSizes mesh;
  std::string schedule = "1f1b", recompute = "none";
  std::int64_t zero = 0, micro_batches = 1;
  std::string storage = "fp32";
};

std::string name_of(const Way& way) {
  return fmt::format("data {} pipeline {} tensor {} zero {} {} recompute {} micro-batches {} {}", way.mesh.data, way.mesh.pipeline,
                     way.mesh.tensor, way.zero, way.schedule, way.recompute, way.micro_batches, way.storage);
}

/// The largest number of stages that a network can have.
std::size_t units_of(const std::string& network) { return network == "mlp" ? 9 : network == "cnn" ? 4 : 8; }

/// A way for this mesh; what it leaves open goes round with `turn`.
Way way_on(const comm::MeshSizes& mesh, std::size_t turn, const std::string& network) {
  const auto schedules = schedule::pipelines();
  const std::string recompute[] = {"none", "units", "all"};
  Way way{.mesh = mesh, .recompute = recompute[turn % std::size(recompute)]};
  if (mesh.pipeline > 1) way.schedule = schedules[turn % schedules.size()].key;
  const bool chunks = schedules[turn % schedules.size()].key == "interleaved_1f1b";
  if (chunks && 2 * static_cast<std::size_t>(mesh.pipeline) > units_of(network)) way.schedule = "1f1b";
  if (mesh.data > 1) way.zero = static_cast<std::int64_t>((turn + turn / 4) % 4);
  way.micro_batches = mesh.pipeline > 1 ? 2 : 1 + static_cast<std::int64_t>(turn % 2);
  return way;
}

/// For every mesh as many ways as it takes to have every schedule and every stage that it can have; the rest goes round.
std::vector<Way> all_ways(const std::string& network) {
  const bool each = network == "mlp" || network.starts_with("gpt");
  std::vector<Way> ways;
  std::size_t turn = 0;
  for (const int data : {1, 2, 4, 8})
    for (const int pipeline : {1, 2, 4})
      for (const int tensor : {1, 2, 4}) {
        if (data * pipeline * tensor > 8) continue;
        const std::size_t kinds = std::max<std::size_t>(pipeline > 1 ? schedule::pipelines().size() : 1, data > 1 ? 4 : 1);
        for (std::size_t i = 0; i < (each ? kinds : 1); ++i, ++turn) ways.push_back(way_on({data, pipeline, tensor}, turn, network));
      }
  return ways;
}

Recipe recipe_for_network(const std::string& network, const std::filesystem::path& folder) {
  Recipe recipe = tiny_recipe();
  const bool gpt = network.starts_with("gpt");
  recipe.model.network = gpt ? "gpt" : network, recipe.data.classes = 8;
  recipe.data.batch = 16, recipe.data.train_samples = 160, recipe.data.test_samples = 16, recipe.train.epochs = 2;
  recipe.optim.rate = 0.01, recipe.optim.weight_decay = 1e-4, recipe.optim.clip_norm = 5;
  recipe.train.evaluate_every = 0;
  if (network == "mlp") recipe.model.hidden = {16, 12, 16, 12, 16, 12, 16, 12};
  else if (gpt) {
    recipe.model.tied = network == "gpt_tied";
    if (network == "gpt_experts") recipe.model.experts = 8, recipe.model.experts_top = 2, recipe.model.expert_capacity = 1;
    recipe.data.name = "text", recipe.data.root = (folder / "text.txt").string(), recipe.data.context = 8;
    std::ofstream text(recipe.data.root);
    for (int i = 0; i < 90; ++i) text << "the quick brown fox jumps over lazy dogs " << i % 7 << '\n';
    recipe.model.layers = 6, recipe.model.width = 16, recipe.model.heads = 4, recipe.optim.rate = 0.05;
  } else {
    recipe.data.shape = network == "vgg16" ? std::vector<std::int64_t>{3, 20, 20} : std::vector<std::int64_t>{3, 16, 16},
    recipe.model.multiplier = 0.125, recipe.model.dropout = network == "vgg16" ? 0 : -1;
    recipe.optim.rate = network == "resnet18" ? 2e-4 : 1e-3;
  }
  recipe.train.steps = 20;
  return recipe;
}

std::vector<NamedTensor> trained(Recipe recipe, const Way& way) {
  recipe.parallel.data = way.mesh.data, recipe.parallel.pipeline = way.mesh.pipeline, recipe.parallel.tensor = way.mesh.tensor;
  recipe.parallel.schedule = way.schedule, recipe.parallel.zero = way.zero;
  recipe.train.micro_batches = way.micro_batches, recipe.train.recompute = way.recompute;
  recipe.train.storage = way.storage;
  const Folder folder;
  try {
    run_in(folder.path(), recipe);
  } catch (const Error& problem) {
    ADD_FAILURE() << name_of(way) << ": " << problem.what();
    return {};
  }
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& item : newest_good_checkpoint(folder.path()).second.tensors)
    if (item.name.starts_with("model.") && step::saved_shape(tensors, item.name) == std::nullopt)
      tensors.push_back({item.name, step::find_saved(newest_good_checkpoint(folder.path()).second.tensors, item.name).clone()});
  return tensors;
}

/// `together`: as one vector. Batch norms of a few samples amplify the rounding of small tensors.
void expect_equal(const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected, const Way& way, bool together,
                  double tolerance = kTolerance) {
  if (found.empty()) return;  // told of already
  double all_differences = 0, all_norms = 0;
  for (const NamedTensor& item : expected) {
    const at::Tensor here = step::saved_or_none(found, item.name);
    ASSERT_TRUE(here.defined()) << item.name << ", " << name_of(way);
    const double norm = item.tensor.to(at::kDouble).norm().item<double>();
    const double difference = (here.to(at::kDouble) - item.tensor.to(at::kDouble)).norm().item<double>();
    all_differences += difference * difference, all_norms += norm * norm;
    if (together) continue;
    EXPECT_LE(difference, tolerance * std::max(norm, kLeastNorm)) << item.name << ", " << name_of(way);
  }
  EXPECT_LE(std::sqrt(all_differences), tolerance * std::sqrt(all_norms)) << name_of(way);
}

class MeshTraining : public testing::TestWithParam<std::string> {};

TEST_P(MeshTraining, TrainsToTheParametersOfOneWorker) {
  const Folder folder;
  const std::string& network = GetParam();
  const Recipe recipe = recipe_for_network(network, folder.path());
  // Batch norms see a worker's micro-batch: the reference has as many workers that share the batch, and as many micro-batches.
  const bool norms = network == "resnet18";
  std::map<std::pair<int, std::int64_t>, std::vector<NamedTensor>> references;
  const auto reference = [&](const Way& way) -> const std::vector<NamedTensor>& {
    const std::pair key = norms ? std::pair(way.mesh.data, way.micro_batches) : std::pair(1, std::int64_t{1});
    if (!references.contains(key)) references[key] = trained(recipe, {.mesh = {key.first, 1, 1}, .micro_batches = key.second});
    return references[key];
  };
  for (const Way& way : all_ways(network)) expect_equal(trained(recipe, way), reference(way), way, norms);
}

/// Every mesh of 3, 5, 6 and 7 ranks.
std::vector<comm::MeshSizes> uneven_meshes() {
  std::vector<comm::MeshSizes> meshes;
  for (const int ranks : {3, 5, 6, 7})
    for (int data = 1; data <= ranks; ++data)
      for (int pipeline = 1; data * pipeline <= ranks; ++pipeline)
        if (ranks % (data * pipeline) == 0) meshes.push_back({data, pipeline, ranks / data / pipeline});
  return meshes;
}

/// Layers of it can be shared by 2, 3 and 6 ranks, and not by 5 or 7.
Recipe recipe_for_uneven(const std::string& network, const std::filesystem::path& folder) {
  Recipe recipe = recipe_for_network(network, folder);
  recipe.data.uneven = "weight";  // 16 samples for 3, 5, 6 or 7 workers
  if (network == "mlp") recipe.model.hidden = {24, 12, 24, 12, 24, 12, 24, 12};
  else recipe.model.width = 24, recipe.model.heads = 6;
  return recipe;
}

class UnevenMesh : public testing::TestWithParam<std::string> {};

TEST_P(UnevenMesh, TrainsToTheParametersOfOneWorkerOrIsRefused) {
  const Folder folder;
  const Recipe recipe = recipe_for_uneven(GetParam(), folder.path());
  const std::vector<NamedTensor> alone = trained(recipe, {.mesh = {1, 1, 1}});
  std::size_t turn = 0, refused = 0;
  for (const comm::MeshSizes& mesh : uneven_meshes()) {
    const Way way = way_on(mesh, turn++, GetParam());
    if (6 % mesh.tensor == 0) {
      expect_equal(trained(recipe, way), alone, way, false);
      continue;
    }
    ++refused;
    Recipe other = recipe;
    other.parallel.data = mesh.data, other.parallel.pipeline = mesh.pipeline, other.parallel.tensor = mesh.tensor;
    EXPECT_THAT(message_of<ConfigError>([&] { run_in(folder.path() / "refused", other); }),
                testing::AllOf(testing::HasSubstr(GetParam()), testing::HasSubstr(fmt::format("{} ranks", mesh.tensor)),
                               testing::HasSubstr("parallel.tensor=6")))
        << name_of(way);
  }
  EXPECT_EQ(refused, 2U) << "tensor 5 and 7";
}

TEST(CoarseMesh, MoreStagesThanUnitsAreRefused) {
  const Folder folder;
  for (const int stages : {5, 6, 7}) {
    Recipe recipe = recipe_for_network("cnn", folder.path());
    recipe.parallel.pipeline = stages;
    EXPECT_THAT(message_of<ConfigError>([&] { run_in(folder.path() / "refused", recipe); }),
                testing::AllOf(testing::HasSubstr(fmt::format("parallel.pipeline={}", stages)), testing::HasSubstr("parallel.pipeline=4")));
  }
}

class StoredIn16Bits : public testing::TestWithParam<std::string> {};

TEST_P(StoredIn16Bits, MeshesTrainToTheParametersOfOneWorker) {
  const Folder folder;
  const Recipe recipe = recipe_for_network(GetParam(), folder.path());
  for (const std::string storage : {"bf16", "fp16"}) {
    const auto train_as = [&](Way way) {
      way.storage = storage;
      return trained(recipe, way);
    };
    const std::vector<NamedTensor> alone = train_as({.mesh = {1, 1, 1}});
    std::size_t turn = 0;
    for (const comm::MeshSizes& mesh :
         {comm::MeshSizes{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {2, 1, 2}, {2, 2, 2}}) {
      Way way = way_on(mesh, turn++, GetParam());
      way.storage = storage;
      expect_equal(train_as(way), alone, way, /*together=*/true, storage == "bf16" ? kTolerance_bf16 : kTolerance_fp16);
    }
  }
}

// The last batch of an epoch has two samples for four workers.
TEST(RaggedMesh, ARankWithoutSamplesTakesPart) {
  const Folder folder;
  Recipe recipe = recipe_for_network("mlp", folder.path());
  recipe.data.train_samples = 16 * 4 + 2, recipe.data.drop_last = false, recipe.data.uneven = "weight";
  recipe.train.epochs = 4;
  const std::vector<NamedTensor> alone = trained(recipe, {.mesh = {1, 1, 1}});
  for (const std::int64_t zero : {0, 1, 2, 3})
    for (const std::string recompute : {"none", "units", "all"}) {
      const Way way{.mesh = {4, 1, 1}, .recompute = recompute, .zero = zero};
      expect_equal(trained(recipe, way), alone, way, false);
    }
  const Way pipelined{.mesh = {4, 2, 1}, .recompute = "all", .zero = 3};
  expect_equal(trained(recipe, pipelined), alone, pipelined, false);
}

INSTANTIATE_TEST_SUITE_P(Slow, MeshTraining, testing::Values("mlp", "cnn", "resnet18", "vgg16", "gpt", "gpt_tied", "gpt_experts"),
                         [](const auto& each) { return each.param; });
INSTANTIATE_TEST_SUITE_P(Slow, UnevenMesh, testing::Values("mlp", "gpt"), [](const auto& each) { return each.param; });
INSTANTIATE_TEST_SUITE_P(Slow, StoredIn16Bits, testing::Values("mlp", "gpt"), [](const auto& each) { return each.param; });

}  // namespace
}  // namespace paceline::train
