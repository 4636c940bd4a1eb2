// Weights of `gpt` to and from the layout of Hugging Face's GPT-2.
#include "paceline/train/gpt2_names.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "paceline/base/safetensors.h"
#include "paceline/nn/graph_module.h"
#include "paceline/train/tensor_file.h"
#include "paceline/train/weights.h"
#include "support.h"

namespace paceline::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kWidth = 12, kHeads = 3, kLayers = 2, kContext = 10, kVocabulary = 17;

Recipe gpt_recipe(bool tied, std::int64_t experts = 0) {
  Recipe recipe;
  recipe.model.network = "gpt", recipe.model.input = {kContext}, recipe.model.classes = kVocabulary;
  recipe.model.layers = kLayers, recipe.model.width = kWidth, recipe.model.heads = kHeads, recipe.model.tied = tied;
  recipe.model.experts = experts;
  return recipe;
}

std::shared_ptr<nn::GraphModule> gpt_module(const Recipe& recipe, std::uint64_t seed) {
  nn::GraphModule::Options options;
  options.seed = seed;
  auto module = std::make_shared<nn::GraphModule>(graph::make_graph(recipe.model), options);
  at::Tensor parameters = module->arena().parameters();
  parameters.mul_(6).add_(at::sin(at::arange(parameters.numel()) * static_cast<double>(seed)) * 0.1);  // biases and norms differ, too
  module->refresh();
  return module;
}

Checkpoint gpt_checkpoint(Recipe recipe, nn::GraphModule& module) {
  Checkpoint checkpoint;
  checkpoint.network = "gpt", checkpoint.recipe = recipe.config().toml(), checkpoint.tensors = model_tensors(module);
  return checkpoint;
}

at::Tensor some_tokens() { return at::remainder(at::arange(2 * kContext) * 5 + 2, kVocabulary).reshape({2, kContext}); }

at::Tensor logits_of(nn::GraphModule& module) {
  nn::Pass pass;
  pass.training = false;
  return module.run(some_tokens(), pass, nullptr);
}

std::map<std::string, at::Tensor> tensors_in(const std::filesystem::path& file) {
  std::map<std::string, at::Tensor> tensors;
  const safetensors::File opened(file);
  for (const safetensors::Tensor& tensor : opened.tensors()) tensors[tensor.name] = to_torch(tensor);
  return tensors;
}

void write_tensors(const std::filesystem::path& file, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  safetensors::write(file, HostTensors(list).views(), {{"format", "pt"}});
}

/// GPT2LMHeadModel's forward pass in plain operations, as transformers/models/gpt2/modeling_gpt2.py has it: Conv1D is x W + b.
at::Tensor reference_logits(const std::map<std::string, at::Tensor>& w) {
  const at::Tensor tokens = some_tokens();
  const auto conv1d = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, w.at(name + ".weight")) + w.at(name + ".bias");
  };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {kWidth}, w.at(name + ".weight"), w.at(name + ".bias"), 1e-5);
  };
  at::Tensor x =
      w.at("transformer.wte.weight").index_select(0, tokens.reshape({-1})).reshape({2, kContext, kWidth}) + w.at("transformer.wpe.weight");
  const at::Tensor seen = at::ones({kContext, kContext}, at::kBool).tril();
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string h = "transformer.h." + std::to_string(layer);
    const auto qkv = conv1d(norm(x, h + ".ln_1"), h + ".attn.c_attn").split(kWidth, 2);
    const auto heads = [&](const at::Tensor& t) { return t.reshape({2, kContext, kHeads, kWidth / kHeads}).permute({0, 2, 1, 3}); };
    at::Tensor scores = at::matmul(heads(qkv[0]), heads(qkv[1]).transpose(-1, -2)) / std::sqrt(static_cast<double>(kWidth) / kHeads);
    scores = at::where(seen, scores, at::full({}, -1e30));
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), heads(qkv[2])).permute({0, 2, 1, 3}).reshape({2, kContext, kWidth});
    x = x + conv1d(mixed, h + ".attn.c_proj");
    const at::Tensor u = conv1d(norm(x, h + ".ln_2"), h + ".mlp.c_fc");
    const at::Tensor gelu_new = 0.5 * u * (1 + at::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * at::pow(u, 3))));
    x = x + conv1d(gelu_new, h + ".mlp.c_proj");
  }
  return at::matmul(norm(x, "transformer.ln_f"), w.at("lm_head.weight").t());
}

TEST(Gpt2Names, ExportedWeightsGiveGpt2TheSameLogitsAndComeBack) {
  for (const bool tied : {true, false}) {
    const Folder folder;
    const Recipe recipe = gpt_recipe(tied);
    const auto trained = gpt_module(recipe, 1), fresh = gpt_module(recipe, 2);
    export_weights(gpt_checkpoint(recipe, *trained), folder / "gpt2.safetensors", kLargestWeights, Names::gpt2);
    const auto weights = tensors_in(folder / "gpt2.safetensors");
    EXPECT_EQ(weights.at("transformer.h.1.attn.c_attn.weight").sizes(), (std::vector<std::int64_t>{kWidth, 3 * kWidth}));
    EXPECT_EQ(weights.at("transformer.h.1.mlp.c_fc.weight").sizes(), (std::vector<std::int64_t>{kWidth, 4 * kWidth}));
    EXPECT_EQ(weights.size(), static_cast<std::size_t>(12 * kLayers + 5));
    const at::Tensor logits = logits_of(*trained);
    EXPECT_GT(logits.std().item<double>(), 0.1);
    EXPECT_TRUE(at::allclose(logits, reference_logits(weights), 1e-4, 1e-5)) << "tied " << tied;

    ASSERT_FALSE(at::equal(logits, logits_of(*fresh)));
    load_weights(*fresh, folder / "gpt2.safetensors");
    EXPECT_TRUE(at::equal(logits, logits_of(*fresh)));
  }
}

TEST(Gpt2Names, APublicFileOfTheBareTransformerLoads) {
  const Folder folder;
  const Recipe recipe = gpt_recipe(true);
  const auto trained = gpt_module(recipe, 1), fresh = gpt_module(recipe, 2), untied = gpt_module(gpt_recipe(false), 2);
  export_weights(gpt_checkpoint(recipe, *trained), folder / "gpt2.safetensors", kLargestWeights, Names::gpt2);
  std::map<std::string, at::Tensor> bare;
  for (const auto& [name, tensor] : tensors_in(folder / "gpt2.safetensors"))
    if (name.starts_with("transformer.")) bare[name.substr(12)] = tensor;
  bare["h.0.attn.bias"] = at::ones({1, 1, kContext, kContext}).tril();
  bare["h.0.attn.masked_bias"] = at::full({1}, -1e4);
  write_tensors(folder / "bare.safetensors", bare);
  load_weights(*fresh, folder / "bare.safetensors");
  EXPECT_TRUE(at::equal(logits_of(*trained), logits_of(*fresh)));
  EXPECT_THAT(message_of<ConfigError>([&] { load_weights(*untied, folder / "bare.safetensors"); }),
              AllOf(HasSubstr("bare.safetensors"), HasSubstr("lm_head.weight"), HasSubstr("model.tied=true")));
}

TEST(Gpt2Names, OtherNetworksHaveNoSuchNames) {
  const Folder folder;
  const Recipe recipe = gpt_recipe(false, 2);
  const auto experts = gpt_module(recipe, 1);
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { export_weights(gpt_checkpoint(recipe, *experts), folder / "w.safetensors", kLargestWeights, Names::gpt2); }),
              AllOf(HasSubstr("transformer.h.1.mlp.gate"), HasSubstr("--names pytorch")));
  EXPECT_FALSE(std::filesystem::exists(folder / "w.safetensors"));
}

}  // namespace
}  // namespace paceline::train
