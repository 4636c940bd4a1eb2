// Weights to and from safetensors under PyTorch's names.
#include <ATen/ATen.h>

#include "paceline/base/safetensors.h"
#include "paceline/nn/graph_module.h"
#include "paceline/train/tensor_file.h"
#include "paceline/train/weights.h"
#include "support.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A network with batch norms, small enough for a test.
graph::Graph normed_graph() {
  graph::ModelConfig config;
  config.network = "mobilenet_v1";
  config.input = {1, 16, 16};
  config.classes = 3;
  return graph::make_graph(config);
}

graph::Graph plain_graph() {
  graph::ModelConfig config;
  config.network = "mlp";
  config.input = {1, 4, 4};
  config.hidden = {5};
  config.classes = 3;
  return graph::make_graph(config);
}

nn::GraphModule make_module(graph::Graph graph, std::uint64_t seed) {
  nn::GraphModule::Options options;
  options.seed = seed;
  return nn::GraphModule(std::move(graph), options);
}

at::Tensor output_of(nn::GraphModule& module) {
  nn::Pass pass;
  pass.training = false;
  const auto& shape = module.graph().input();
  std::vector<std::int64_t> batch = {2};
  batch.insert(batch.end(), shape.begin(), shape.end());
  return module.run(at::linspace(-1, 1, 2 * graph::elements(shape)).reshape(batch), pass, nullptr);
}

std::vector<NamedTensor> weights_of(nn::GraphModule& module) {
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& item : model_tensors(module)) tensors.push_back({item.name.substr(6), item.tensor});
  return tensors;
}

void write_weights(const std::filesystem::path& file, std::span<const NamedTensor> tensors) {
  safetensors::write(file, HostTensors(tensors).views(), {{"format", "pt"}});
}

Checkpoint checkpoint_of(nn::GraphModule& module) {
  Checkpoint checkpoint;
  checkpoint.position.step = 12;
  checkpoint.network = module.graph().network();
  checkpoint.tensors = model_tensors(module);
  checkpoint.tensors.push_back({"optim.momentum.fc.weight", at::ones({3})});
  return checkpoint;
}

TEST(Weights, AnExportLoadsAndComputesTheSame) {
  const Folder folder;
  nn::GraphModule trained = make_module(normed_graph(), 1), fresh = make_module(normed_graph(), 2);
  trained.statistics().parameters().add_(0.25);  // as training would have moved them
  ASSERT_FALSE(at::equal(output_of(trained), output_of(fresh)));
  export_weights(checkpoint_of(trained), folder / "w.safetensors");
  load_weights(fresh, folder / "w.safetensors");
  EXPECT_TRUE(at::equal(output_of(trained), output_of(fresh)));
}

graph::ModelConfig tied_model() {
  graph::ModelConfig config;
  config.network = "gpt", config.input = {4}, config.classes = 7, config.layers = 1, config.width = 8, config.heads = 2, config.tied = true;
  return config;
}

TEST(Weights, ATiedHeadIsTheTableUnderBothNames) {
  const Folder folder;
  nn::GraphModule module = make_module(graph::make_graph(tied_model()), 1), other = make_module(graph::make_graph(tied_model()), 2);
  Recipe recipe;
  recipe.model = tied_model();
  Checkpoint checkpoint = checkpoint_of(module);
  checkpoint.recipe = recipe.config().toml();
  export_weights(checkpoint, folder / "w.safetensors");
  std::vector<NamedTensor> tensors = weights_of(module);
  const auto table = std::ranges::find(tensors, "transformer.wte.weight", &NamedTensor::name);
  ASSERT_NE(table, tensors.end());
  const auto exported = std::make_shared<const safetensors::File>(folder / "w.safetensors");
  ASSERT_NE(exported->find("lm_head.weight"), nullptr) << "PyTorch's strict loading asks for it";
  EXPECT_TRUE(at::equal(map_tensor(exported, *exported->find("lm_head.weight")), table->tensor));

  const auto loads = [&] {
    other.arena().parameters().zero_();
    load_weights(other, folder / "w.safetensors");
    return at::equal(other.arena().parameters(), module.arena().parameters());
  };
  EXPECT_TRUE(loads()) << "both names";
  write_weights(folder / "w.safetensors", tensors);
  EXPECT_TRUE(loads()) << "the table's name";
  table->name = "lm_head.weight";
  write_weights(folder / "w.safetensors", tensors);
  EXPECT_TRUE(loads()) << "the head's name";
  tensors.push_back({"transformer.wte.weight", table->tensor + 1});
  write_weights(folder / "w.safetensors", tensors);
  EXPECT_THAT(message_of<ConfigError>([&] { load_weights(other, folder / "w.safetensors"); }),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("transformer.wte.weight"), HasSubstr("model.tied=false")));
}

TEST(Weights, TheExportHasPyTorchsNamesAndNothingElse) {
  const Folder folder;
  nn::GraphModule module = make_module(normed_graph(), 1);
  export_weights(checkpoint_of(module), folder / "w.safetensors");
  const safetensors::File file(folder / "w.safetensors");
  std::size_t norms = 0;
  for (const NamedTensor& item : weights_of(module)) {
    ASSERT_NE(file.find(item.name), nullptr) << item.name;
    if (!item.name.ends_with("running_mean")) continue;
    ++norms;
    const safetensors::Tensor* tracked = file.find(item.name.substr(0, item.name.size() - 12) + "num_batches_tracked");
    ASSERT_NE(tracked, nullptr) << "PyTorch's strict loading asks for it";
    EXPECT_EQ(tracked->dtype, safetensors::Dtype::I64);
    EXPECT_TRUE(tracked->shape.empty());
    EXPECT_EQ(to_torch(*tracked).item<std::int64_t>(), 12);
  }
  EXPECT_GT(norms, 0u);
  EXPECT_EQ(file.tensors().size(), weights_of(module).size() + norms) << "nothing of the optimizer";
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(Weights, ACheckpointLoadsAsItIs) {
  const Folder folder;
  nn::GraphModule trained = make_module(plain_graph(), 1), fresh = make_module(plain_graph(), 2);
  write_checkpoint(folder / "c.safetensors", checkpoint_of(trained));
  load_weights(fresh, folder / "c.safetensors");
  EXPECT_TRUE(at::equal(output_of(trained), output_of(fresh)));
}

TEST(Weights, ADamagedCheckpointIsRefused) {
  const Folder folder;
  const auto file = folder / "c.safetensors";
  nn::GraphModule trained = make_module(plain_graph(), 1), fresh = make_module(plain_graph(), 2);
  write_checkpoint(file, checkpoint_of(trained));
  const at::Tensor before = fresh.arena().parameters().clone();
  const std::string good = bytes_in(file);
  for (const std::size_t place : {good.size() - 5, good.find("\"position\"") + 1}) {  // as a file of safetensors it is still whole
    std::string bytes = good;
    bytes[place] ^= 1;
    put_bytes(file, bytes);
    EXPECT_THAT(message_of<DataError>([&] { load_weights(fresh, file); }), AllOf(HasSubstr(file.string()), HasSubstr("is damaged")));
  }
  EXPECT_TRUE(at::equal(fresh.arena().parameters(), before));
}

TEST(Weights, TheLastOfTwoWaysToLoadCounts) {
  const Folder folder;
  nn::GraphModule trained = make_module(plain_graph(), 1), fresh = make_module(plain_graph(), 2);
  write_weights(folder / "w.safetensors", weights_of(trained));
  for (at::Tensor& parameter : fresh.parameters()) parameter.set_data(at::zeros_like(parameter));  // as torch::load() does
  EXPECT_EQ(weights_of(fresh).front().tensor.abs().sum().item<float>(), 0);
  load_weights(fresh, folder / "w.safetensors");
  EXPECT_TRUE(at::equal(output_of(trained), output_of(fresh)));
}

TEST(Weights, OtherPrecisionsAreConverted) {
  const Folder folder;
  nn::GraphModule trained = make_module(plain_graph(), 1), fresh = make_module(plain_graph(), 2);
  auto weights = weights_of(trained);
  for (NamedTensor& item : weights) item.tensor = item.tensor.to(at::kDouble);
  write_weights(folder / "w.safetensors", weights);
  load_weights(fresh, folder / "w.safetensors");
  EXPECT_TRUE(at::equal(output_of(trained), output_of(fresh)));
}

TEST(Weights, WhatDoesNotFitIsNamed) {
  const Folder folder;
  const auto file = folder / "w.safetensors";
  nn::GraphModule module = make_module(plain_graph(), 1);
  const at::Tensor before = module.arena().parameters().clone();
  const auto refused = [&](const std::vector<NamedTensor>& weights) {
    write_weights(file, weights);
    const std::string message = message_of<ConfigError>([&] { load_weights(module, file); });
    EXPECT_THAT(message, HasSubstr(file.string()));
    EXPECT_TRUE(at::equal(module.arena().parameters(), before)) << "a file that does not fit changes nothing";
    return message;
  };
  auto weights = weights_of(module);
  weights.erase(weights.begin());
  EXPECT_THAT(refused(weights), HasSubstr("'fc1.weight' is missing"));
  weights = weights_of(module);
  weights.push_back({"fc9.weight", at::ones({2})});
  EXPECT_THAT(refused(weights), HasSubstr("'fc9.weight' is not part of this model"));
  weights = weights_of(module);
  weights[0].tensor = weights[0].tensor.t();
  EXPECT_THAT(refused(weights), HasSubstr("has shape 16x5, expected 5x16"));
  put_bytes(file, "nothing of the kind");
  EXPECT_THROW(load_weights(module, file), DataError);
}

TEST(Weights, ValuesThatAreNotFiniteAreRefused) {
  const Folder folder;
  nn::GraphModule module = make_module(normed_graph(), 1);
  for (const char* kind : {"weight", "running_mean"})
    for (const double value : {double{NAN}, 1e300}) {  // which float32 has none for
      auto weights = weights_of(module);
      const auto spoilt = std::ranges::find_if(weights, [&](const NamedTensor& item) { return item.name.ends_with(kind); });
      spoilt->tensor = at::full_like(spoilt->tensor, value, at::kDouble);
      write_weights(folder / "w.safetensors", weights);
      EXPECT_THAT(message_of<DataError>([&] { load_weights(module, folder / "w.safetensors"); }), HasSubstr("'" + spoilt->name + "'"));
    }
}

TEST(Weights, ValuesOfAnotherKindAreRefused) {
  const Folder folder;
  const auto file = folder / "w.safetensors";
  nn::GraphModule module = make_module(plain_graph(), 1);
  const at::Tensor before = module.arena().parameters().clone();
  for (const auto& [type, name] : {std::pair(at::kLong, "Long"), std::pair(at::kChar, "Char"), std::pair(at::kBool, "Bool")}) {
    auto weights = weights_of(module);
    weights[1].tensor = weights[1].tensor.to(type);
    write_weights(file, weights);
    EXPECT_THAT(message_of<DataError>([&] { load_weights(module, file); }),
                AllOf(HasSubstr(file.string()), HasSubstr("'" + weights[1].name + "' holds " + name + " values"), HasSubstr("float32")));
  }
  EXPECT_TRUE(at::equal(module.arena().parameters(), before));
}

TEST(Weights, NamesOfAWrappedModuleAreRecognised) {
  const Folder folder;
  nn::GraphModule module = make_module(plain_graph(), 1);
  auto weights = weights_of(module);
  for (NamedTensor& item : weights) item.name = "module." + item.name;
  write_weights(folder / "w.safetensors", weights);
  EXPECT_THAT(message_of<ConfigError>([&] { load_weights(module, folder / "w.safetensors"); }), HasSubstr("model.module.state_dict()"));
}

TEST(Weights, ARecipeStartsFromThem) {
  const Folder folder;
  Recipe recipe = tiny_recipe();
  Session first(recipe);
  first.to_end(folder.path());
  export_weights(newest_good_checkpoint(folder.path()).second, folder / "w.safetensors");
  recipe.model.weights = (folder / "w.safetensors").string();
  recipe.train.seed = 77;
  Session second(recipe);
  EXPECT_TRUE(at::equal(second.parameters(), first.parameters()));
}

}  // namespace
}  // namespace paceline::train
