// GPT-2's layout: its size, its names, its first weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "tests/message_of.h"

namespace paceline::graph {
namespace {

using testing::AllOf;
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

TEST(Gpt, CountsATiedHeadOnce) {
  ModelConfig config = gpt(12, 768, 12, 1024, 50257);
  const std::int64_t apart = make_graph(config).macs();
  config.tied = true;
  const Graph graph = make_graph(config);
  EXPECT_EQ(graph.parameter_count(), 124439808);
  EXPECT_EQ(graph.macs(), apart) << "its products are made all the same";
  ASSERT_EQ(graph.aliases().size(), 1U);
  EXPECT_EQ(graph.aliases()[0].name, "lm_head.weight");
  EXPECT_EQ(graph.aliases()[0].parameter, "transformer.wte.weight");
  config.network = "mlp";
  EXPECT_THAT(message_of<ConfigError>([&] { make_graph(config); }), AllOf(HasSubstr("mlp"), HasSubstr("model.tied")));
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

TEST(Gpt, HasExpertsInSomeBlocks) {
  ModelConfig config = gpt(4, 8, 2, 6, 11);
  config.experts = 4;
  const std::int64_t plain = make_graph(gpt(4, 8, 2, 6, 11)).parameter_count();
  const std::int64_t mlp = 2 * 8 * 32 + 32 + 8;
  const auto blocks_of = [](const Graph& graph) {
    std::vector<std::string> names;
    for (const Layer& layer : graph.layers())
      if (layer.kind == Kind::experts) names.push_back(layer.name);
    return names;
  };
  EXPECT_THAT(blocks_of(make_graph(config)), testing::ElementsAre("transformer.h.1.mlp", "transformer.h.3.mlp"));
  EXPECT_EQ(make_graph(config).parameter_count(), plain + 2 * (3 * mlp + 4 * 8)) << "three more each, and a gate";
  config.expert_every = 1;
  EXPECT_EQ(blocks_of(make_graph(config)).size(), 4u);

  const Graph graph = make_graph(config);
  const Layer& layer = *std::ranges::find(graph.layers(), Kind::experts, &Layer::kind);
  EXPECT_EQ(expert_slots(layer), 2) << "1.25 · 6 / 4, rounded up";
  EXPECT_EQ(layer.macs, 6 * 8 * 4 + 2 * 4 * 2 * 8 * 32) << "the gate, and every slot of four experts";
  std::vector<std::string> shapes;
  for (const Parameter& parameter : graph.parameters())
    if (parameter.name.starts_with("transformer.h.0.mlp."))
      shapes.push_back(parameter.name.substr(20) + " " + to_string(parameter.shape) + (parameter.spread ? " spread" : ""));
  EXPECT_THAT(shapes, testing::ElementsAre("gate.weight 4x8", "c_fc.weight 4x32x8 spread", "c_fc.bias 4x32 spread",
                                           "c_proj.weight 4x8x32 spread", "c_proj.bias 4x8 spread"));
}

TEST(Gpt, RefusesExpertsThatCannotBe) {
  const auto refused = [](auto set) {
    ModelConfig config = gpt(4, 8, 2, 6, 11);
    set(config);
    return message_of<ConfigError>([&] { make_graph(config); });
  };
  EXPECT_THAT(refused([](ModelConfig& c) { c.experts = 1; }), HasSubstr("experts cannot be 1"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.experts = 4, c.expert_capacity = 5; }), HasSubstr("expert_capacity cannot be 5"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.experts = 4, c.expert_every = 5; }), HasSubstr("model.expert_every=4"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.experts_top = 2; }), HasSubstr("model.experts_top=2"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.network = "mlp", c.input = {4}, c.experts = 4; }), HasSubstr("model.experts"));
  EXPECT_THAT(message_of<ConfigError>([] { check_experts(8, 3); }), AllOf(HasSubstr("model.experts=6 or 9"), HasSubstr("parallel.data=2")));
  EXPECT_NO_THROW(check_experts(8, 4));
}

}  // namespace
}  // namespace paceline::graph
