// Modules that have some units of a network: the same first weights, the same passes and gradients as the network that has them all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"

namespace paceline::nn {
namespace {

using testing::HasSubstr;

graph::Graph network(const std::string& name) {
  graph::ModelConfig config;
  config.network = name, config.classes = 10, config.input = {3, 32, 32}, config.dropout = 0;
  if (name == "gpt") config.input = {8}, config.layers = 2, config.width = 16;
  return graph::make_graph(config);
}

at::Tensor batch_for(const graph::Graph& graph) {
  graph::Shape shape = graph.input();
  shape.insert(shape.begin(), 4);
  torch::manual_seed(7);
  return shape.size() == 2 ? at::randint(10, shape, at::kLong) : at::randn(shape);
}

class Held : public testing::TestWithParam<std::string> {};

TEST_P(Held, StagesOfANetworkAreTheNetwork) {
  const graph::Graph graph = network(GetParam());
  GraphModule whole(graph, {.seed = 3});
  const std::size_t units = whole.units().size();
  ASSERT_GT(units, 1U);
  const Units first{0, units / 2}, second{units / 2, units};
  GraphModule front(graph, {.seed = 3, .held = {first}}), back(graph, {.seed = 3, .held = {second}});
  ASSERT_EQ(front.arena().entries().size() + back.arena().entries().size(), whole.arena().entries().size());

  const at::Tensor batch = batch_for(graph), output = whole.run(batch, {}, nullptr), probe = at::randn_like(output);
  Trace whole_trace, front_trace, back_trace;
  whole.run(batch, {}, &whole_trace);
  whole.back(probe, {}, whole_trace);
  const Tensors between = front.run(first, {batch}, {}, &front_trace);
  EXPECT_TRUE(at::equal(back.run(second, between, {}, &back_trace).at(0), output));
  const Tensors gradients = back.back(second, {probe}, {}, back_trace, {.inputs = true}, nullptr);
  front.back(first, gradients, {}, front_trace, {}, nullptr);

  std::size_t entry = 0;
  for (GraphModule* part : {&front, &back})
    for (std::size_t i = 0; i < part->arena().entries().size(); ++i, ++entry) {
      EXPECT_EQ(part->arena().entries()[i].name, whole.arena().entries()[entry].name);
      EXPECT_EQ(part->arena().entries()[i].unit, whole.arena().entries()[entry].unit);
      EXPECT_TRUE(at::equal(part->arena().parameter(i), whole.arena().parameter(entry))) << part->arena().entries()[i].name;
      EXPECT_TRUE(at::equal(part->arena().gradient(i), whole.arena().gradient(entry))) << part->arena().entries()[i].name;
    }
}

TEST_P(Held, TwoRangesWithAGapBetweenThem) {
  const graph::Graph graph = network(GetParam());
  GraphModule whole(graph, {});
  const std::size_t units = whole.units().size();
  ASSERT_GT(units, 2U);
  GraphModule ends(graph, {.held = {{0, 1}, {units - 1, units}}});
  std::size_t entries = 0;
  for (const std::size_t unit : {std::size_t{0}, units - 1}) {
    const Unit &here = ends.units()[unit], &there = whole.units()[unit];
    EXPECT_EQ(here.last_entry - here.first_entry, there.last_entry - there.first_entry);
    for (std::size_t i = 0; i < here.last_entry - here.first_entry; ++i, ++entries)
      EXPECT_EQ(ends.arena().entries()[here.first_entry + i].name, whole.arena().entries()[there.first_entry + i].name);
  }
  EXPECT_EQ(ends.arena().entries().size(), entries);
  for (std::size_t unit = 1; unit + 1 < units; ++unit) EXPECT_EQ(ends.units()[unit].first_entry, ends.units()[unit].last_entry);
  EXPECT_THROW(ends.run(batch_for(graph), {}, nullptr), Error);
}

INSTANTIATE_TEST_SUITE_P(Networks, Held, testing::Values("resnet18", "cnn", "gpt", "mobilenet_v1"),
                         [](const auto& each) { return each.param; });

graph::Graph small_gpt(bool tied) {
  graph::ModelConfig config;
  config.network = "gpt", config.classes = 10, config.input = {8}, config.layers = 2, config.width = 16, config.tied = tied;
  return graph::make_graph(config);
}

std::size_t entry_of(GraphModule& module, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(module.arena().entries(), name, &tensor::Entry::name) -
                                  module.arena().entries().begin());
}

/// A tied network and one whose head has the same values in a weight of its own.
class TiedModules : public testing::Test {
 protected:
  TiedModules() {
    for (std::size_t i = 0; i < tied.arena().entries().size(); ++i)
      apart.arena().parameter(entry_of(apart, tied.arena().entries()[i].name)).copy_(tied.arena().parameter(i));
    apart.arena().parameter(entry_of(apart, "lm_head.weight")).copy_(tied.arena().parameter(table));
    output = apart.run(batch, {}, &trace);
    probe = at::randn_like(output);
    apart.back(probe, {}, trace);
  }

  at::Tensor expected_of(const std::string& name) {
    const at::Tensor own = apart.arena().gradient(entry_of(apart, name));
    return name == "transformer.wte.weight" ? own + apart.arena().gradient(entry_of(apart, "lm_head.weight")) : own;
  }

  GraphModule tied{small_gpt(true), {.dtype = at::kDouble, .seed = 3}}, apart{small_gpt(false), {.dtype = at::kDouble, .seed = 4}};
  const std::size_t table = entry_of(tied, "transformer.wte.weight");
  const at::Tensor batch = batch_for(tied.graph());
  Trace trace;
  at::Tensor output, probe;
};

TEST_F(TiedModules, HaveTheSumOfBothGradients) {
  EXPECT_EQ(tied.arena().entries().size() + 1, apart.arena().entries().size());
  for (const bool put_off : {false, true}) {
    for (const bool again : {false, true}) {  // added to what is there
      Trace own;
      Pass pass;
      pass.accumulate = again;
      EXPECT_TRUE(at::allclose(tied.run(batch, pass, &own), output));
      std::vector<std::size_t> told(tied.arena().entries().size(), 0);
      const auto ready = [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) ++told[i];
      };
      tied.back(tied.all(), {probe}, pass, own, {.weights = !put_off}, ready);
      if (put_off) tied.weight_gradients(tied.all(), pass, own, ready);
      EXPECT_EQ(told, std::vector<std::size_t>(told.size(), 1)) << "each is complete once";
      for (std::size_t i = 0; i < told.size(); ++i) {
        const std::string& name = tied.arena().entries()[i].name;
        EXPECT_TRUE(at::allclose(tied.arena().gradient(i), (again ? 2 : 1) * expected_of(name))) << name;
      }
    }
  }
}

TEST_F(TiedModules, StagesShareTheTable) {
  const std::size_t units = tied.units().size();
  const Units first{0, 2}, second{2, units};
  GraphModule front(small_gpt(true), {.dtype = at::kDouble, .seed = 3, .held = {first}});
  GraphModule back(small_gpt(true), {.dtype = at::kDouble, .seed = 3, .held = {second}});
  GraphModule middle(small_gpt(true), {.held = {{1, 2}}});
  EXPECT_FALSE(tied.tied());
  ASSERT_TRUE(front.tied() && back.tied() && middle.tied());
  EXPECT_EQ(front.tied()->entry, entry_of(front, "transformer.wte.weight"));
  EXPECT_FALSE(back.tied()->entry);
  EXPECT_FALSE(middle.tied()->values.defined());
  EXPECT_EQ(front.arena().entries().size() + back.arena().entries().size(), tied.arena().entries().size()) << "the copy is in no arena";

  back.tied()->values.copy_(front.tied()->values);
  Trace front_trace, back_trace;
  EXPECT_TRUE(at::allclose(back.run(second, front.run(first, {batch}, {}, &front_trace), {}, &back_trace).at(0), output));
  front.back(first, back.back(second, {probe}, {}, back_trace, {.inputs = true}, nullptr), {}, front_trace, {}, nullptr);
  EXPECT_TRUE(at::allclose(front.tied()->gradient + back.tied()->gradient, expected_of("transformer.wte.weight")));

  Pass added;
  added.accumulate = true;
  back.sit_out_back(second, added, nullptr);
  EXPECT_GT(back.tied()->gradient.abs().max().item<double>(), 0);
  back.sit_out_back(second, {}, nullptr);
  EXPECT_EQ(back.tied()->gradient.abs().max().item<double>(), 0) << "no samples, no gradient";
}

TEST(HeldSlices, AreCutFromWhatTheWholeNetworkDraws) {
  const graph::Graph graph = network("gpt");
  GraphModule whole(graph, {.seed = 5});
  std::vector<HeldParameter> held;
  std::size_t index = 0;
  for (const graph::Parameter& parameter : graph.parameters()) {
    HeldParameter each{parameter, index++};
    if (parameter.name.ends_with("c_attn.weight")) each.slice = tensor::Slice{0, 48, {{8, 8}, {24, 8}, {40, 8}}};
    if (parameter.name.ends_with("mlp.c_proj.weight")) each.slice = tensor::Slice{1, 64, {{32, 32}}};
    held.push_back(each);
  }
  std::vector<tensor::Spec> specs;
  for (const HeldParameter& each : held) specs.push_back({each.parameter.name, each.shape(), true, each.slice});
  tensor::Arena arena(specs, {.tensor = at::kFloat}), statistics({}, {.tensor = at::kFloat});
  initialise(graph, held, 5, arena, statistics);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const at::Tensor all = whole.arena().parameter(i);
    EXPECT_EQ(arena.entries()[i].whole(), all.sizes().vec());
    EXPECT_TRUE(at::equal(arena.parameter(i), specs[i].slice ? tensor::cut(all, *specs[i].slice) : all)) << specs[i].name;
  }
}

}  // namespace
}  // namespace paceline::nn
