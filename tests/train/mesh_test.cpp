// Every mesh of up to eight ranks, every pipeline schedule, every stage of ZeRO, with and without recomputation and accumulation, trains a
// network to the losses and parameters of one worker, or is refused with a choice that works.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <regex>

#include "mesh_ways.h"
#include "runs.h"

namespace paceline::train {
namespace {

constexpr double kTolerance = 1e-5;  // relative, of every tensor's norm, after 20 steps in fp32
constexpr double kSmallNorm = 0.01;  // biases begin at zero, and some of them stay there but for rounding

/// Relative differences of all parameters together, and of losses.
struct Tolerance {
  double parameters = kTolerance, losses = kTolerance;
};

// Where parameters and gradients are stored in 16 bits, sums in another order round otherwise: by up to 2⁻⁹ of an element in bf16 and 2⁻¹²
// in fp16. What that comes to in 20 steps depends on the network; these are two to three times what runs show.
struct In16Bits {
  SmallNetwork network;
  Tolerance bf16, fp16;
};
constexpr In16Bits kIn16Bits[] = {
    {kSmall[0], {.parameters = 5e-4, .losses = 2e-4}, {.parameters = 4.5e-5, .losses = 3e-6}},
    {kSmall[2], {.parameters = 1e-3, .losses = 1e-4}, {.parameters = 1.3e-4, .losses = 1e-5}},
    {kSmall[3], {.parameters = 9e-4, .losses = 6e-5}, {.parameters = 1.1e-4, .losses = 9e-6}},
    {kSmall[4], {.parameters = 2.9e-4, .losses = 1.9e-5}, {.parameters = 3e-5, .losses = 2.5e-6}},
};

struct Trained {
  std::vector<NamedTensor> tensors;  // empty: it failed, and the test was told
  double train_loss = 0, test_loss = 0;
  std::int64_t skipped_steps = 0;
};

Trained trained(Recipe recipe, const Way& way) {
  set_way(recipe, way);
  const Folder folder;
  try {
    const observe::RunEnded ended = run_in(folder.path(), recipe);
    Trained result{.tensors = {}, .train_loss = ended.train_loss, .test_loss = ended.test_loss, .skipped_steps = ended.skipped_steps};
    const Checkpoint checkpoint = newest_good_checkpoint(folder.path()).second;
    for (const NamedTensor& item : checkpoint.tensors)
      if (item.name.starts_with("model.") && step::saved_shape(result.tensors, item.name) == std::nullopt)
        result.tensors.push_back({item.name, step::find_saved(checkpoint.tensors, item.name).clone()});
    return result;
  } catch (const Error& problem) {
    ADD_FAILURE() << name_of(way) << ": " << problem.what();
    return {};
  }
}

/// `together`: as one vector. Batch norms of a few samples amplify the rounding of small tensors.
void expect_equal(const Trained& found, const Trained& expected, const Way& way, bool together, const Tolerance& tolerance = {}) {
  if (found.tensors.empty()) return;
  // In fp16 a worker's gradients are its share of the mean (step/loss_scale.h), which overflow no sooner than one worker's.
  EXPECT_EQ(found.skipped_steps, expected.skipped_steps) << name_of(way);
  EXPECT_NEAR(found.train_loss, expected.train_loss, tolerance.losses * expected.train_loss) << name_of(way);
  EXPECT_NEAR(found.test_loss, expected.test_loss, tolerance.losses * expected.test_loss) << name_of(way);
  double all_differences = 0, all_norms = 0;
  for (const NamedTensor& item : expected.tensors) {
    const at::Tensor here = step::saved_or_none(found.tensors, item.name);
    ASSERT_TRUE(here.defined()) << item.name << ", " << name_of(way);
    const double norm = item.tensor.to(at::kDouble).norm().item<double>();
    const double difference = (here.to(at::kDouble) - item.tensor.to(at::kDouble)).norm().item<double>();
    all_differences += difference * difference, all_norms += norm * norm;
    if (together) continue;
    EXPECT_LE(difference, tolerance.parameters * std::max(norm, kSmallNorm)) << item.name << ", " << name_of(way);
  }
  EXPECT_LE(std::sqrt(all_differences), tolerance.parameters * std::sqrt(all_norms)) << name_of(way);
}

void construct(const Recipe& recipe) {
  observe::Bus bus;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  const Workers workers(recipe, {}, {.bus = bus, .clock = clock, .stop = stop});
}

/// The recipe of this way, for as many ranks as it has and no other number.
Recipe fixed(Recipe recipe, const Way& way) {
  set_way(recipe, way);
  recipe.parallel.workers = recipe.parallel.workers_of_mesh();
  return recipe;
}

/// The refusal of this recipe, in words; empty if it is not refused.
std::string refusal_of(const Recipe& recipe) {
  try {
    construct(recipe);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

/// The first setting that a refusal advises works, and so does the mesh: on as many ranks, unless the refusal names another number.
void expect_good_advice(const Recipe& recipe, const std::string& refusal) {
  std::smatch setting, mesh;
  const bool sets = std::regex_search(refusal, setting, std::regex("(?:use|choose)(?: at most)? ([a-z_]+\\.[a-z_]+=[a-z0-9]+)"));
  const bool meshes = std::regex_search(refusal, mesh, std::regex("(?:([0-9]+) ranks? with )?--mesh ([a-z0-9=,]+)"));
  ASSERT_TRUE(sets || meshes) << refusal;
  if (sets) {
    Recipe other = recipe;
    other.config().set(setting[1].str());
    EXPECT_NO_THROW(construct(other)) << refusal;
  }
  if (!meshes) return;
  Recipe other = recipe;
  if (mesh[1].matched) other.parallel.workers = std::stoll(mesh[1].str());
  const comm::MeshSizes sizes = comm::parse_mesh(mesh[2].str());
  EXPECT_EQ(sizes.data * sizes.pipeline * sizes.tensor, other.parallel.workers) << refusal;
  other.parallel.data = sizes.data, other.parallel.pipeline = sizes.pipeline, other.parallel.tensor = sizes.tensor;
  EXPECT_NO_THROW(construct(other)) << refusal;
}

class MeshTraining : public testing::TestWithParam<SmallNetwork> {};

TEST_P(MeshTraining, TrainsToTheLossesAndParametersOfOneWorkerOrIsRefused) {
  const Folder folder;
  const SmallNetwork& small = GetParam();
  const Recipe recipe = recipe_for(small, folder.path());
  // Batch norms see a worker's micro-batch: the reference has as many workers that share the batch, and as many micro-batches.
  std::map<std::pair<int, std::int64_t>, Trained> references;
  const auto reference = [&](const Way& way) -> const Trained& {
    const std::pair key = small.norms ? std::pair(way.mesh.data, way.micro_batches) : std::pair(1, std::int64_t{1});
    if (!references.contains(key)) references[key] = trained(recipe, {.mesh = {key.first, 1, 1}, .micro_batches = key.second});
    return references[key];
  };
  Design design(small, recipe);
  for (const Way& way : design.ways(meshes_for(small))) {
    const std::string refusal = design.works(way.mesh) ? "" : refusal_of(fixed(recipe, way));
    if (refusal.empty()) expect_equal(trained(recipe, way), reference(way), way, small.norms);
    else expect_good_advice(fixed(recipe, way), refusal);
  }
}

// Sizes that need not multiply to the number of ranks: of networks with 4 heads, with 24 experts besides, and with 4 units.
TEST(MeshAdvice, IsForTheRanksThatThereAre) {
  const Folder folder;
  for (const std::size_t network : {2, 3, 4})
    for (const std::int64_t ranks : {3, 6, 8})
      for (const auto axis : {&ParallelConfig::pipeline, &ParallelConfig::tensor})
        for (const std::int64_t size : {0, 4, 5, 8}) {
          Recipe recipe = recipe_for(kSmall[network], folder.path());
          recipe.parallel.workers = ranks, recipe.parallel.*axis = size;
          if (const std::string refusal = refusal_of(recipe); !refusal.empty()) {
            EXPECT_THAT(refusal, testing::HasSubstr("--mesh data="));
            expect_good_advice(recipe, refusal);
          }
        }
}

TEST(SmallNetworks, AreThereForEveryNetwork) {
  for (const auto& row : graph::networks()) {
    const auto other = kStandsFor.find(row.key);
    const std::string_view network = other == kStandsFor.end() ? row.key : other->second;
    EXPECT_NE(std::ranges::find(kSmall, network, &SmallNetwork::network), std::end(kSmall))
        << "network '" << row.key << "' needs a row in mesh_ways.h, so that meshes are shown to train it";
  }
}

/// Every pair of settings that this network can be trained with, as Design::pairs_of has them.
std::set<Design::Pair> possible_pairs(const Design& design, std::size_t units) {
  std::vector<std::vector<std::string>> settings = {{}, {"micro-batches 1", "micro-batches 2", "micro-batches many"}, {}, {}, {"tensor"}};
  for (const std::string& recompute : design.recomputations()) settings[0].push_back("recompute " + recompute);
  for (int zero = 0; zero <= 3; ++zero) settings[2].push_back(fmt::format("zero {}", zero));
  for (const auto& schedule : schedule::pipelines()) {
    const std::size_t least = schedule.make.interleaved ? 4 : 2;  // two stages, of two chunks each
    if (units >= least) settings[3].emplace_back(schedule.key);
  }
  std::set<Design::Pair> pairs;
  for (std::size_t i = 0; i < settings.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (const std::string& first : settings[j])
        for (const std::string& second : settings[i]) pairs.emplace(first, second);
  return pairs;
}

TEST(Design, HasEveryPair) {
  for (const SmallNetwork& small : kSmall) {
    if (small.ways != SmallNetwork::Ways::all_pairs) continue;
    const Folder folder;
    const Recipe recipe = recipe_for(small, folder.path());
    Design design(small, recipe);
    std::set<std::string> meshes;
    std::set<Design::Pair> seen;
    for (const Way& way : design.ways(all_meshes())) {
      meshes.insert(fmt::format("{} {} {}", way.mesh.data, way.mesh.pipeline, way.mesh.tensor));
      if (!design.works(way.mesh)) continue;
      for (const Design::Pair& pair : Design::pairs_of(way)) seen.insert(pair);
    }
    EXPECT_EQ(meshes.size(), 38U) << small.name;
    EXPECT_EQ(seen, possible_pairs(design, units_of(recipe))) << small.name;
  }
}

class StoredIn16Bits : public testing::TestWithParam<In16Bits> {};

TEST_P(StoredIn16Bits, MeshesTrainToTheParametersOfOneWorker) {
  const Folder folder;
  SmallNetwork small = GetParam().network;
  const Recipe recipe = recipe_for(small, folder.path());
  small.ways = SmallNetwork::Ways::few;
  for (const std::string storage : {"bf16", "fp16"}) {
    const auto train_as = [&](Way way) {
      way.storage = storage;
      return trained(recipe, way);
    };
    const Trained alone = train_as({.mesh = {1, 1, 1}});
    Design design(small, recipe);
    for (Way way : design.ways({{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {2, 1, 2}, {2, 2, 2}})) {
      way.storage = storage;
      expect_equal(train_as(way), alone, way, /*together=*/true, storage == "bf16" ? GetParam().bf16 : GetParam().fp16);
    }
  }
}

// The last batch of an epoch has two samples for four workers, some of which compute theirs in four micro-batches.
TEST(RaggedMesh, ARankWithoutSamplesTakesPart) {
  const Folder folder;
  Recipe recipe = recipe_for(kSmall[0], folder.path());
  recipe.data.train_samples = 16 * 4 + 2, recipe.data.drop_last = false;
  recipe.train.epochs = 4;
  const Trained alone = trained(recipe, {.mesh = {1, 1, 1}});
  for (const std::int64_t zero : {0, 1, 2, 3})
    for (const std::string recompute : {"none", "units", "all"}) {
      const Way way{.mesh = {4, 1, 1}, .recompute = recompute, .zero = zero, .micro_batches = recompute == "units" ? 4 : 1};
      expect_equal(trained(recipe, way), alone, way, false);
    }
  for (const std::int64_t micro_batches : {1, 4}) {
    const Way pipelined{.mesh = {4, 2, 1}, .recompute = "all", .zero = 3, .micro_batches = micro_batches};
    expect_equal(trained(recipe, pipelined), alone, pipelined, false);
  }
}

INSTANTIATE_TEST_SUITE_P(Slow, MeshTraining, testing::ValuesIn(kSmall), [](const auto& each) { return std::string(each.param.name); });
INSTANTIATE_TEST_SUITE_P(Slow, StoredIn16Bits, testing::ValuesIn(kIn16Bits),
                         [](const auto& each) { return std::string(each.param.network.name); });

}  // namespace
}  // namespace paceline::train
