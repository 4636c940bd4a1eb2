// What formulas say a pass keeps, against what modules of LibTorch really save.
#include "paceline/memory/activations.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>

#include "paceline/comm/engine.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/attention.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/loss.h"
#include "paceline/nn/onednn.h"
#include "paceline/nn/recomputing_model.h"
#include "paceline/nn/split_loss.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::memory {
namespace {

graph::ModelConfig small(const std::string& network) {
  graph::ModelConfig config;
  config.network = network, config.classes = 10, config.input = {3, 32, 32};
  if (network == "mlp") config.input = {1, 20, 20}, config.hidden = {64, 48, 32};
  if (network == "lenet5") config.input = {1, 28, 28};
  if (network.starts_with("inception")) config.input = {3, 75, 75};
  if (network == "gpt") config.input = {32}, config.layers = 4, config.width = 32;
  return config;
}

Activations activations_of(const graph::Graph& graph, const PassSize& size) {
  const auto end = graph.layers().begin() + graph.logits() + 1;
  return {{graph.layers().begin(), end}, graph::units_of(graph), size};
}

/// Bytes of different storages that a trace and the output hold, without the batch.
std::int64_t held(nn::Model& model, const at::Tensor& batch) {
  nn::Trace trace;
  const auto masks = nn::make_masks(c10::kCPU);  // as training has them: those of attention are drawn again
  nn::Pass pass;
  pass.masks = masks.get();
  const at::Tensor output = model.run(batch, pass, &trace);
  std::set<const void*> seen = {batch.storage().unsafeGetStorageImpl()};
  std::int64_t sum = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      sum += static_cast<std::int64_t>(tensor.storage().nbytes());
  };
  for (const auto& tensors : trace.saved)
    for (const at::Tensor& tensor : tensors) add(tensor);
  for (const auto& kept : trace.kept)
    for (const at::Tensor& tensor : kept.inputs) add(tensor);
  add(output);
  return sum;
}

void expect_agreement(const graph::ModelConfig& config, tensor::Precision precision = tensor::Precision::fp32) {
  constexpr std::int64_t kSamples = 3;
  const graph::Graph graph = graph::make_graph(config);
  nn::GraphModule::Options options;
  options.precision = precision;
  const auto module = std::make_shared<nn::GraphModule>(graph, options);
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), kSamples);
  const at::Tensor batch = shape.size() == 2 && config.network == "gpt" ? at::randint(10, shape, at::kLong) : at::randn(shape);
  const bool half = precision == tensor::Precision::bf16;
  const Activations counted = activations_of(graph, {.samples = kSamples, .element = half ? 2 : 4, .converts = half});
  for (const char* recompute : {"none", "units", "all"}) {
    const auto model = module->units().size() == 1 ? module : nn::recomputing(module, nn::parse_recompute(recompute));
    const auto measured = static_cast<double>(held(*model, batch));
    const auto formula = static_cast<double>(pass_bytes(counted, 0, counted.units().size(), recompute).held);
    EXPECT_NEAR(formula, measured, 0.02 * measured) << config.network << ' ' << recompute;
  }
}

/// The most that LibTorch's allocator held of a pass, its loss and its way back.
std::int64_t peak(nn::Model& model, const at::Tensor& batch, const at::Tensor& targets) {
  const auto masks = nn::make_masks(c10::kCPU);
  nn::Pass pass;
  pass.masks = masks.get();
  const tensor::MemoryMeter meter;
  nn::Trace trace;
  const at::Tensor output = model.run(batch, pass, &trace);
  at::Tensor gradient = nn::softmax_loss(output, targets, 0, 1, true).gradient;
  model.back(std::move(gradient), pass, trace);
  return meter.peak();
}

/// Through oneDNN's kernels, or through LibTorch's own.
void expect_peak(const graph::ModelConfig& config, bool onednn = false, double tolerance = 0.05,
                 tensor::Precision precision = tensor::Precision::fp32) {
  const std::int64_t samples = onednn ? 16 : 6;  // with fewer, LibTorch leaves small convolutions to its own kernels
  constexpr double kSmall = 2000;                // bytes that are not worth a formula: sums, labels, scalars
  const bool before = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(onednn);
  const graph::Graph graph = graph::make_graph(config);
  nn::GraphModule::Options options;
  options.precision = precision;
  const auto module = std::make_shared<nn::GraphModule>(graph, options);
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), samples);
  const bool half = precision == tensor::Precision::bf16;
  const bool tokens = config.network == "gpt";
  const at::Tensor batch = tokens ? at::randint(config.classes, shape, at::kLong) : at::randn(shape);
  const at::Tensor targets = at::randint(config.classes, tokens ? shape : graph::Shape{samples}, at::kLong);
  const Kernels kernels{.columns = !onednn,
                        .block = onednn ? nn::onednn_block() : 0,
                        .attention = nn::has_attention_kernels(),
                        .sums = onednn ? std::int64_t{nn::product_sums()} * at::get_num_threads() : 0};
  const Activations counted =
      activations_of(graph, {.samples = samples, .element = half ? 2 : 4, .casts = half, .converts = half, .kernels = kernels});
  for (const char* recompute : {"none", "units", "all"}) {
    const auto model = module->units().size() == 1 ? module : nn::recomputing(module, nn::parse_recompute(recompute));
    const auto measured = static_cast<double>(peak(*model, batch, targets));
    const auto formula = static_cast<double>(pass_bytes(counted, 0, counted.units().size(), recompute).peak);
    EXPECT_NEAR(formula, measured, tolerance * measured + kSmall) << config.network << ' ' << recompute;
  }
  at::globalContext().setUserEnabledMkldnn(before);
}

class Networks : public testing::TestWithParam<std::string> {};

TEST_P(Networks, SaveWhatTheFormulasSay) { expect_agreement(small(GetParam())); }

TEST_P(Networks, NeedAtMostWhatTheFormulasSay) { expect_peak(small(GetParam())); }

TEST_P(Networks, NeedAtMostWhatTheFormulasSayThroughOneDnn) {
  if (nn::onednn_block() == 0) GTEST_SKIP() << "convolutions do not go through oneDNN here";
  expect_peak(small(GetParam()), /*onednn=*/true, /*tolerance=*/0.1);
}

TEST(Activations, CountTheSumsOfProductsOf16Bits) {
  if (nn::product_sums() == 0) GTEST_SKIP() << "products of matrices in bf16 need nothing beside their results here";
  for (const char* network : {"mlp", "gpt", "lenet5", "cnn", "resnet18", "resnet20"})
    expect_peak(small(network), /*onednn=*/true, /*tolerance=*/0.05, tensor::Precision::bf16);
}

TEST(Activations, CountWhatAttentionsMasksNeed) {
  graph::ModelConfig config = small("gpt");
  config.input = {160}, config.dropout = 0.1;
  expect_peak(config);
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& row : graph::networks())
    if (graph::make_graph(small(std::string(row.key))).parameter_count() < 12'000'000) result.emplace_back(row.key);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Activations, Networks, testing::ValuesIn(names()), [](const auto& row) { return row.param; });

/// The loss alone, of logits that somebody else holds.
TEST(Activations, CountWhatASplitLossNeeds) {
  graph::ModelConfig config = small("gpt");
  config.classes = 3000;
  const graph::Graph graph = graph::make_graph(config);
  const auto axis = std::move(comm::local_group(1).front());
  const nn::SplitSoftmaxLoss loss(*axis, config.classes);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor logits = at::randn({4, 32, config.classes}).to(type), targets = at::randint(config.classes, {4, 32}, at::kLong);
    const tensor::MemoryMeter meter;
    loss.score(logits, targets, 1);
    const Activations counted = activations_of(graph, {.samples = 4, .element = type == at::kFloat ? 4 : 2, .split_loss = true});
    EXPECT_NEAR(static_cast<double>(counted.loss()) / static_cast<double>(meter.peak()), 1, 0.02) << c10::toString(type);
  }
}

TEST(Activations, CountDropout) {
  for (const char* network : {"mlp", "gpt"}) {
    graph::ModelConfig config = small(network);
    config.dropout = 0.1;
    expect_agreement(config);
  }
}

TEST(Activations, CountExperts) {
  for (const std::int64_t top : {1, 2}) {
    graph::ModelConfig config = small("gpt");
    config.experts = 4, config.experts_top = top;
    expect_agreement(config);
    expect_agreement(config, tensor::Precision::bf16);
  }
}

TEST(Activations, CountLowerPrecision) {
  for (const char* network : {"mlp", "cnn", "gpt"}) expect_agreement(small(network), tensor::Precision::bf16);
}

TEST(Activations, OfATransformerFollowTheKnownFormula) {
  // s·b·h(34 + 5as/h) bytes a layer in fp16 with dropout masks of one byte. Without dropout 2sbh less; without the matrix of attention
  // nothing of 5as/h, but a sum in fp32 for each of its rows.
  graph::ModelConfig config = small("gpt");
  config.input = {64}, config.width = 128, config.heads = 4, config.dropout = 0;
  const auto layer = [&](std::int64_t layers) {
    config.layers = layers;
    const graph::Graph graph = graph::make_graph(config);
    const Activations counted = activations_of(graph, {.samples = 2, .element = 2});
    return counted.saved(0, counted.units().size());
  };
  const std::int64_t s = 64, b = 2, h = 128, a = 4;
  const std::int64_t norms = 2 * 2 * s * b * 2;  // mean and deviation of two norms
  EXPECT_EQ(layer(5) - layer(4), s * b * h * 32 + 4 * a * s * b + norms);
}

}  // namespace
}  // namespace paceline::memory
