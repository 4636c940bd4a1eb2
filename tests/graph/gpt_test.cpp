// GPT-2's layout: its size, its names, its first weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "tests/message_of.h"

namespace paceline::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Layer layer_of(const Graph& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.layers(), name, &Layer::name);
  if (found == graph.layers().end()) throw std::out_of_range(std::string(name));
  return *found;
}

ModelConfig gpt(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t positions, std::int64_t vocabulary) {
  ModelConfig config;
  config.network = "gpt";
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.input = {positions};
  config.classes = vocabulary;
  return config;
}

TEST(Gpt, HasTheSizeOfGpt2) {
  // 124,439,808 is GPT-2 small with a tied head; the untied one adds a second 50257 × 768.
  EXPECT_EQ(make_graph(gpt(12, 768, 12, 1024, 50257)).parameter_count(), 124439808 + 50257 * 768);
  EXPECT_EQ(make_graph(gpt(48, 1600, 25, 1024, 50257)).parameter_count(), 1557611200 + 50257 * 1600);
}

TEST(Gpt, BearsGpt2sNames) {
  const Graph graph = make_graph(gpt(1, 8, 2, 4, 11));
  std::vector<std::string> lines;
  for (const Parameter& parameter : graph.parameters())
    lines.push_back(parameter.name + " " + to_string(parameter.shape) + (parameter.decay ? "" : " -"));
  const std::string block = "transformer.h.0.";
  EXPECT_THAT(
      lines, ElementsAre("transformer.wte.weight 11x8", "transformer.wpe.weight 4x8", block + "ln_1.weight 8 -", block + "ln_1.bias 8 -",
                         block + "attn.c_attn.weight 24x8", block + "attn.c_attn.bias 24 -", block + "attn.c_proj.weight 8x8",
                         block + "attn.c_proj.bias 8 -", block + "ln_2.weight 8 -", block + "ln_2.bias 8 -", block + "mlp.c_fc.weight 32x8",
                         block + "mlp.c_fc.bias 32 -", block + "mlp.c_proj.weight 8x32", block + "mlp.c_proj.bias 8 -",
                         "transformer.ln_f.weight 8 -", "transformer.ln_f.bias 8 -", "lm_head.weight 11x8"));
  EXPECT_EQ(graph.output(), (Shape{4, 11}));
  // Projections and MLP 12·T·d², two products T²·d, head T·d·v.
  EXPECT_EQ(graph.macs(), 12 * 4 * 64 + 2 * 16 * 8 + 4 * 8 * 11);
}

TEST(Gpt, DrawsResidualProjectionsNarrower) {
  const Graph graph = make_graph(gpt(8, 8, 2, 4, 11));
  const double residual = 0.02 / 4;  // 1/√(2·8)
  EXPECT_DOUBLE_EQ(layer_of(graph, "transformer.h.3.attn").init_std, 0.02);
  EXPECT_DOUBLE_EQ(layer_of(graph, "transformer.h.3.attn").projection_std, residual);
  EXPECT_DOUBLE_EQ(layer_of(graph, "transformer.h.3.mlp.c_fc").init_std, 0.02);
  EXPECT_DOUBLE_EQ(layer_of(graph, "transformer.h.3.mlp.c_proj").init_std, residual);
  EXPECT_DOUBLE_EQ(layer_of(graph, "lm_head").init_std, 0.02);
  EXPECT_TRUE(layer_of(graph, "transformer.h.3.attn").causal);
  EXPECT_EQ(layer_of(graph, "transformer.h.3.attn").probability, 0);
}

TEST(Gpt, DropsWhereGpt2Does) {
  ModelConfig config = gpt(2, 8, 2, 4, 11);
  config.dropout = 0.2;
  const Graph graph = make_graph(config);
  EXPECT_EQ(std::count_if(graph.layers().begin(), graph.layers().end(), [](const Layer& layer) { return layer.kind == Kind::dropout; }), 5);
  EXPECT_EQ(layer_of(graph, "transformer.h.1.attn").probability, 0.2);
}

TEST(Gpt, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(message_of<ConfigError>([] { make_graph(gpt(1, 10, 3, 4, 11)); }), HasSubstr("3 heads do not divide 10 features"));
}

}  // namespace
}  // namespace paceline::graph
