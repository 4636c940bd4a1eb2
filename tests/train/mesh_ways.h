// Which ways to share the training of a network the tests of meshes take: a design that has every mesh, and every pair of settings. With
// PACELINE_MESHES=3/16 in the environment they take the third of sixteen parts of all combinations instead, which takes hours in all.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "paceline/graph/units.h"
#include "paceline/schedule/pipeline.h"
#include "support.h"

namespace paceline::train {

/// A way to share the training of a network.
struct Way {
  comm::MeshSizes mesh;
  std::string schedule = "1f1b", recompute = "none";
  std::int64_t zero = 0, micro_batches = 1;
  std::string storage = "fp32";
};

inline std::string name_of(const Way& way) {
  return fmt::format("data {} pipeline {} tensor {} zero {} {} recompute {} micro-batches {} {}", way.mesh.data, way.mesh.pipeline,
                     way.mesh.tensor, way.zero, way.schedule, way.recompute, way.micro_batches, way.storage);
}

inline void set_way(Recipe& recipe, const Way& way) {
  recipe.parallel.data = way.mesh.data, recipe.parallel.pipeline = way.mesh.pipeline, recipe.parallel.tensor = way.mesh.tensor;
  recipe.parallel.schedule = way.schedule, recipe.parallel.zero = way.zero;
  if (way.mesh.tensor == 1) recipe.parallel.sequence = false;  // which needs workers to divide the positions among
  recipe.train.micro_batches = way.micro_batches, recipe.train.recompute = way.recompute;
  recipe.train.storage = way.storage;
}

/// A network that is small enough to be trained hundreds of times.
struct SmallNetwork {
  std::string_view name, network;  // of the case; in graph::networks()
  int shares = 8;                  // this many workers can share its layers, and every divisor of it
  bool norms = false;              // its batch norms see a worker's micro-batch
  double rate = 1e-3;              // of learning
  /// Which meshes, and which settings on them.
  enum class Ways { few, few_tensor, all_pairs } ways = Ways::few;
  void (*size)(graph::ModelConfig&, data::DataConfig&) = nullptr;
  bool sequence = false;  // wherever workers share its layers
};

inline void images(data::DataConfig& data, std::int64_t channels, std::int64_t side) { data.shape = {channels, side, side}; }

inline void small_gpt(graph::ModelConfig& model, data::DataConfig& data, std::int64_t heads) {
  model.layers = 6, model.width = 2 * heads, model.heads = heads;
  data.name = "text", data.context = 8, data.batch = 8, data.train_samples = 80;
}
inline constexpr int kExperts = 24;
inline void add_experts(graph::ModelConfig& model, std::int64_t top) {
  model.experts = kExperts, model.experts_top = top, model.expert_capacity = 1;
}

using enum SmallNetwork::Ways;
// MobileNet's rate is small because some of its thousands of activations lie within rounding of ReLU6's corners: which side they are on
// depends on the order of additions, and so do some percent of a gradient.
inline constexpr SmallNetwork kSmall[] = {
    {"mlp", "mlp", 24, false, 0.01, all_pairs, [](auto& model, auto& data) { model.hidden.assign(8, 24), images(data, 1, 8); }},
    {"gpt", "gpt", 24, false, 0.05, all_pairs, [](auto& model, auto& data) { small_gpt(model, data, 24); }},
    {"gpt_tied", "gpt", 4, false, 0.05, all_pairs, [](auto& model, auto& data) { small_gpt(model, data, 4), model.tied = true; }},
    {"gpt_experts", "gpt", 4, false, 0.05, all_pairs, [](auto& model, auto& data) { small_gpt(model, data, 4), add_experts(model, 2); }},
    {"cnn", "cnn", 8, false, 1e-3, all_pairs, [](auto& model, auto& data) { model.multiplier = 0.125, images(data, 3, 16); }},
    {"resnet18", "resnet18", 8, true, 2e-4, all_pairs, [](auto& model, auto& data) { model.multiplier = 0.125, images(data, 3, 16); }},
    {"vgg16", "vgg16", 8, false, 1e-3, all_pairs,
     [](auto& model, auto& data) { model.multiplier = 0.125, model.dropout = 0, images(data, 3, 20); }},
    {"lenet5", "lenet5", 2, false, 1e-3, few, [](auto&, auto& data) { images(data, 1, 28); }},
    {"alexnet", "alexnet", 8, false, 1e-3, few,
     [](auto& model, auto& data) { model.multiplier = 0.125, model.dropout = 0, images(data, 3, 32); }},
    {"mobilenet_v1", "mobilenet_v1", 8, true, 1e-6, few, [](auto& model, auto& data) { model.multiplier = 0.125, images(data, 3, 64); }},
    {"gpt_sequence", "gpt", 4, false, 0.05, few_tensor, [](auto& model, auto& data) { small_gpt(model, data, 4); }, /*sequence=*/true},
    {"gpt_experts_top1", "gpt", 4, false, 0.05, few, [](auto& model, auto& data) { small_gpt(model, data, 4), add_experts(model, 1); }},
};

/// Networks of a family of which a smaller one is above; Inception does not take images of fewer than 75x75 pixels.
inline const std::map<std::string_view, std::string_view> kStandsFor = {
    {"alexnet_ungrouped", "alexnet"},  {"vgg19", "vgg16"},          {"resnet20", "resnet18"},
    {"resnet50", "resnet18"},          {"resnet50_v1", "resnet18"}, {"resnet50_v2", "resnet18"},
    {"resnet50_v2_keras", "resnet18"}, {"inception_v3", "cnn"},     {"inception_v3_torchvision", "cnn"}};

inline Recipe recipe_for(const SmallNetwork& small, const std::filesystem::path& folder) {
  Recipe recipe = tiny_recipe();
  recipe.model.network = small.network, recipe.data.classes = 8;
  recipe.data.batch = 16, recipe.data.train_samples = 160, recipe.data.test_samples = 16, recipe.train.epochs = 2;
  recipe.data.uneven = "weight";  // 16 samples for 3, 5, 6 or 7 workers
  recipe.optim.rate = small.rate, recipe.optim.weight_decay = 1e-4, recipe.optim.clip_norm = 5;
  recipe.train.evaluate_every = 0, recipe.train.checkpoint_share = 0, recipe.train.steps = 20;
  recipe.parallel.sequence = small.sequence;
  small.size(recipe.model, recipe.data);
  if (recipe.data.name == "text") {
    recipe.data.root = (folder / "text.txt").string();
    std::ofstream text(recipe.data.root);
    for (int i = 0; i < 90; ++i) text << "the quick brown fox jumps over lazy dogs " << i % 7 << '\n';
  }
  return recipe;
}

/// The largest number of stages that a network can have.
inline std::size_t units_of(const Recipe& recipe) {
  const auto training = data::make_dataset(recipe.data, data::Split::train, 1);
  return graph::units_of(graph_for(recipe.model, training->info())).size();
}

/// Every mesh of up to eight ranks.
inline std::vector<comm::MeshSizes> all_meshes() {
  std::vector<comm::MeshSizes> meshes;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int data = 1; data <= ranks; ++data)
      for (int pipeline = 1; data * pipeline <= ranks; ++pipeline)
        if (ranks % (data * pipeline) == 0) meshes.push_back({data, pipeline, ranks / data / pipeline});
  return meshes;
}

inline std::vector<comm::MeshSizes> meshes_for(const SmallNetwork& small) {
  switch (small.ways) {
    case few: return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}};
    case few_tensor: return {{1, 1, 2}, {1, 1, 4}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2}};
    case all_pairs: break;
  }
  return all_meshes();
}

/// The ways that are taken for one network, from the registries' rows.
class Design {
 public:
  Design(const SmallNetwork& small, const Recipe& recipe)
      : small_(small), units_(static_cast<int>(units_of(recipe))), batch_(recipe.data.batch) {
    Recipe any = recipe;
    Config config = any.config();
    for (const Section& section : config.sections())
      for (const Field& field : section.fields())
        if (section.name() == "train" && field.key() == "recompute") recomputations_.assign(field.choices().begin(), field.choices().end());
  }

  /// Of the pairs of settings that no earlier mesh has had, each mesh takes as many as it can. Then, if `small` asks for all pairs, further
  /// ways on the smallest meshes have those that are left.
  std::vector<Way> ways(const std::vector<comm::MeshSizes>& meshes) {
    if (const char* const part = std::getenv("PACELINE_MESHES")) return part_of_all(meshes, part);
    std::vector<Way> taken;
    for (const comm::MeshSizes& mesh : meshes) {
      const std::vector<Way> possible = ways_on(mesh);
      const auto best = std::ranges::max_element(possible, {}, [&](const Way& way) { return news(way); });
      if (works(mesh)) note(*best);
      taken.push_back(*best);
    }
    if (small_.ways != SmallNetwork::Ways::all_pairs) return taken;
    const std::vector<Way> all = all_ways(meshes);
    for (;;) {
      const auto best = std::ranges::max_element(all, {}, [&](const Way& way) { return news(way); });
      if (best == all.end() || news(*best) == 0) return taken;
      note(*best);
      taken.push_back(*best);
    }
  }

  /// Words for two settings of the way, each pair in one order.
  using Pair = std::pair<std::string, std::string>;
  static std::vector<Pair> pairs_of(const Way& way) {
    std::vector<std::string> words = {"recompute " + way.recompute, "micro-batches " + micro_batches_of(way)};
    if (way.mesh.data > 1) words.push_back(fmt::format("zero {}", way.zero));
    if (way.mesh.pipeline > 1) words.push_back(way.schedule);
    if (way.mesh.tensor > 1) words.push_back("tensor");
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < words.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) pairs.emplace_back(words[j], words[i]);
    return pairs;
  }
  const std::vector<std::string>& recomputations() const { return recomputations_; }

  /// Whether the network has enough units, and units that are wide enough, for it not to be refused.
  bool works(const comm::MeshSizes& mesh) const {
    const bool experts = small_.name.starts_with("gpt_experts");
    return mesh.pipeline <= units_ && small_.shares % mesh.tensor == 0 && (!experts || kExperts % mesh.data == 0);
  }

 private:
  std::vector<Way> all_ways(const std::vector<comm::MeshSizes>& meshes) const {
    std::vector<Way> all;
    for (const comm::MeshSizes& mesh : meshes)
      if (works(mesh)) std::ranges::copy(ways_on(mesh), std::back_inserter(all));
    return all;
  }

  /// `part`: "3/16".
  std::vector<Way> part_of_all(const std::vector<comm::MeshSizes>& meshes, const std::string& part) const {
    const std::size_t slash = part.find('/'), of = std::stoul(part.substr(slash + 1)), first = std::stoul(part.substr(0, slash)) - 1;
    const std::vector<Way> all = all_ways(meshes);
    std::vector<Way> taken;
    for (std::size_t i = first; i < all.size(); i += of) taken.push_back(all[i]);
    return taken;
  }

  std::vector<Way> ways_on(const comm::MeshSizes& mesh) const {
    std::vector<Way> ways;
    for (const auto& schedule : schedule::pipelines())
      for (std::int64_t zero = 0; zero <= 3; ++zero)
        for (const std::string& recompute : recomputations_)
          for (const std::int64_t micro_batches : {std::int64_t{1}, std::int64_t{2}, many(mesh)})
            if (const Way way{.mesh = mesh,
                              .schedule = std::string(schedule.key),
                              .recompute = recompute,
                              .zero = zero,
                              .micro_batches = micro_batches};
                is_sensible(way))
              ways.push_back(way);
    return ways;
  }

  bool is_sensible(const Way& way) const {
    if (way.mesh.data == 1 && way.zero > 0) return false;
    if (way.mesh.pipeline == 1 && way.schedule != "1f1b") return false;
    if (way.schedule == "interleaved_1f1b" && 2 * way.mesh.pipeline > units_) return false;
    return way.micro_batches == 1 || has_samples_for(way.micro_batches, way.mesh);
  }
  /// A pipeline's worker has a sample for every micro-batch, and a batch norm several.
  bool has_samples_for(std::int64_t micro_batches, const comm::MeshSizes& mesh) const {
    return micro_batches * mesh.data * (small_.norms ? 2 : 1) <= batch_;
  }
  std::int64_t many(const comm::MeshSizes& mesh) const { return has_samples_for(8, mesh) ? 8 : 4; }
  static std::string micro_batches_of(const Way& way) { return way.micro_batches > 2 ? "many" : std::to_string(way.micro_batches); }

  std::ptrdiff_t news(const Way& way) const {
    return std::ranges::count_if(pairs_of(way), [&](const Pair& pair) { return !seen_.contains(pair); });
  }
  void note(const Way& way) {
    for (const Pair& pair : pairs_of(way)) seen_.insert(pair);
  }

  const SmallNetwork& small_;
  int units_;
  std::int64_t batch_;
  std::vector<std::string> recomputations_;
  std::set<Pair> seen_;
};

}  // namespace paceline::train
