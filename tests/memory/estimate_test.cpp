// The formulas of memory: the decks' count, ZeRO's stages, meshes, and what is proposed where something does not fit.
#include "paceline/memory/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/registry.h"
#include "paceline/memory/fit.h"
#include "tests/message_of.h"

namespace paceline::memory {
namespace {

using testing::AllOf;
using testing::HasSubstr;

graph::Graph gpt(std::int64_t layers, std::int64_t width) {
  graph::ModelConfig config;
  config.network = "gpt", config.layers = layers, config.width = width, config.heads = 8, config.input = {64}, config.classes = 64;
  return graph::make_graph(config);
}

TEST(Estimate, CountsAsTheDecksDo) {
  const SlidesCount whole = slides_count(1'000'000'000, 0, 8);
  EXPECT_EQ(whole.parameters, 2'000'000'000);
  EXPECT_EQ(whole.gradients, 2'000'000'000);
  EXPECT_EQ(whole.optimizer, 16'000'000'000);
  EXPECT_EQ(readable(whole.total()), "20.0 GB");
  EXPECT_EQ(slides_count(1'000'000'000, 1, 8).total(), 4'000'000'000 + 2'000'000'000);
  EXPECT_EQ(slides_count(1'000'000'000, 2, 8).total(), 2'000'000'000 + 18'000'000'000 / 8);
  EXPECT_EQ(slides_count(1'000'000'000, 3, 8).total(), 20'000'000'000 / 8);
}

TEST(Estimate, SharesStateByZerosStages) {
  const graph::Graph graph = gpt(8, 64);
  const std::int64_t m = graph.parameter_count();
  Plan plan{.data = 4, .storage = 2, .product = 2, .bucket = 32 << 10};
  const auto of = [&](int zero) {
    plan.zero = zero;
    return estimate(graph, plan).at(0).bytes;
  };
  EXPECT_EQ(of(0).state(), 20 * m) << "as the decks count";
  EXPECT_EQ(of(1)[Category::parameters], 2 * m);
  EXPECT_EQ(of(1)[Category::masters], 2 * m);
  EXPECT_EQ(of(1)[Category::moments], 2 * m);
  EXPECT_LT(of(2)[Category::gradients], m / 2) << "the sum of the own part is among the masters";
  const std::int64_t of_32_kib = of(2)[Category::gradients];
  plan.bucket = 16 << 10;
  EXPECT_EQ(of_32_kib - of(2)[Category::gradients], 2 * (16 << 10)) << "one bucket is reduced, and the next is not full yet";
  plan.bucket = 8 << 20;  // more than the model has
  EXPECT_EQ(of(2)[Category::gradients], 2 * m);
  plan.storage = 4;
  EXPECT_EQ(of(2)[Category::gradients], 4 * (m + m / 4)) << "in fp32 it is not";
  plan.storage = 2;
  const std::int64_t layer = gpt(9, 64).parameter_count() - m;  // the largest units
  EXPECT_NEAR(of(3)[Category::parameters], 2 * (m / 4 + 2 * layer * 3 / 4), 4) << "of what is gathered, the own part is there anyway";
  plan.storage = 4;
  const std::int64_t stored = 4 * (m / 4 + 2 * layer * 3 / 4);
  EXPECT_EQ(of(1)[Category::parameters], 4 * m + 2 * m) << "what is stored, and what the products read";
  EXPECT_NEAR(of(3)[Category::parameters], stored + 2 * 2 * layer, 8) << "copies of the units that are here";
  plan.storage = 2;
  EXPECT_EQ(of(3)[Category::moments], 2 * m);
  EXPECT_EQ(of(0)[Category::activations], of(3)[Category::activations]);
}

TEST(Estimate, ProductsOfAnotherTypeReadCopies) {
  const graph::Graph graph = gpt(8, 64);
  const std::int64_t m = graph.parameter_count();
  const auto state = [&](const Plan& plan) { return estimate(graph, plan).at(0).bytes.state(); };
  EXPECT_EQ(state({.storage = 2, .product = 2}), 20 * m) << "bf16 in bf16";
  EXPECT_EQ(state({.storage = 2, .product = 4}), 24 * m) << "16 bits in fp32";
  EXPECT_EQ(state({.storage = 2, .product = 4, .fp16 = true}), 24 * m);
  EXPECT_EQ(state({.storage = 2, .product = 2, .fp16 = true}), 22 * m) << "fp16 in bf16";
  EXPECT_EQ(state({.storage = 4, .product = 2}), 18 * m);
}

TEST(Estimate, GradientsInFp32NeedNoMasters) {
  const graph::Graph graph = gpt(8, 64);
  const std::int64_t m = graph.parameter_count();
  Plan plan{.data = 4, .storage = 2, .fp32_gradients = true, .product = 2, .bucket = 32 << 10};
  const auto of = [&](int zero) {
    plan.zero = zero;
    return estimate(graph, plan).at(0).bytes;
  };
  EXPECT_EQ(of(0)[Category::parameters], 2 * m);
  EXPECT_EQ(of(0)[Category::gradients], 4 * m);
  EXPECT_EQ(of(0)[Category::masters], 4 * m);
  EXPECT_EQ(of(0).state(), 18 * m);
  EXPECT_EQ(of(1).state(), 6 * m + 12 * m / 4);
  const std::int64_t of_32_kib = of(2)[Category::gradients];
  EXPECT_GT(of_32_kib, m) << "the sum of the own part, in fp32";
  plan.bucket = 16 << 10;
  EXPECT_EQ(of_32_kib - of(2)[Category::gradients], 2 * (16 << 10)) << "buckets are of gradients";
  plan.storage = 4, plan.product = 4;
  EXPECT_EQ(of(0).state(), 16 * m) << "nothing changes where all is fp32";
}

TEST(Estimate, UpdatesMayBeSharedWithoutZero) {
  const graph::Graph graph = gpt(8, 64);
  const Plan plan{.data = 4, .storage = 2, .product = 2};
  Plan shares = plan;
  shares.shared_updates = true;
  Bytes whole = estimate(graph, plan).at(0).bytes;
  const Bytes shared = estimate(graph, shares).at(0).bytes;
  EXPECT_EQ(whole[Category::moments], 4 * shared[Category::moments]);
  EXPECT_EQ(whole[Category::masters], 4 * shared[Category::masters]);
  whole[Category::moments] = shared[Category::moments], whole[Category::masters] = shared[Category::masters];
  EXPECT_EQ(whole.of, shared.of);
}

TEST(Estimate, ExpertsAreSpreadOverTheDataAxisWhateverTheStage) {
  graph::ModelConfig config;
  config.network = "gpt", config.layers = 8, config.width = 64, config.heads = 8, config.input = {64}, config.classes = 64;
  config.experts = 8;
  const graph::Graph graph = graph::make_graph(config);
  const std::int64_t experts = 4 * 8 * (2 * 64 * 256 + 256 + 64), rest = graph.parameter_count() - experts;  // of four blocks
  Plan plan{.data = 4, .storage = 2, .product = 2, .bucket = 64 << 10};
  for (const int zero : {0, 1, 2, 3}) {
    plan.zero = zero;
    const RankKind kind = estimate(graph, plan).at(0);
    EXPECT_EQ(kind.parameters, rest + experts / 4);
    EXPECT_EQ(kind.bytes[Category::moments], 4 * 2 * ((zero > 0 ? rest / 4 : rest) + experts / 4));
  }
  plan.zero = 0;
  EXPECT_EQ(estimate(graph, plan).at(0).bytes.state(), 20 * (rest + experts / 4));
  plan.data = 1, plan.zero = 0;
  EXPECT_EQ(estimate(graph, plan).at(0).bytes.state(), 20 * graph.parameter_count());
}

TEST(Estimate, AHybridSharesLayersOverTheDataAxisWhateverTheStage) {
  graph::ModelConfig config;
  config.network = "alexnet";
  const graph::Graph graph = graph::make_graph(config);
  Plan plan{.data = 4, .samples = 8, .hybrid = "classifier*"};
  const std::int64_t held = graph::local_parameters(graph, graph::hybrid_split(graph, plan.hybrid, 4, 32), 0);
  ASSERT_LT(held, graph.parameter_count() / 3);
  const RankKind kind = estimate(graph, plan).at(0);
  EXPECT_EQ(kind.parameters, held);
  EXPECT_EQ(kind.bytes.state(), 16 * held);
  plan.zero = 1;
  const std::int64_t spread = (graph.parameter_count() - held) / 3;  // three quarters of the split tensors are elsewhere
  EXPECT_EQ(estimate(graph, plan).at(0).bytes[Category::moments], 8 * (spread + (held - spread + 3) / 4));
  plan.zero = 0, plan.hybrid = "none";
  EXPECT_EQ(kind.bytes[Category::activations], estimate(graph, plan).at(0).bytes[Category::activations]);
  plan.hybrid = "classifier*";
  EXPECT_THAT(message_of<ConfigError>([&] { require_fit(graph, plan, {.bytes = 250'000'000, .source = "train.memory_gb"}); }),
              testing::Not(testing::AnyOf(HasSubstr("tensor="), HasSubstr("pipeline="))));
}

TEST(Estimate, CountsOffloadedStateApart) {
  const graph::Graph graph = gpt(8, 64);
  const std::int64_t m = graph.parameter_count();
  Plan plan{.data = 4, .zero = 1, .storage = 2, .product = 2};
  const Bytes device = estimate(graph, plan).at(0).bytes;
  plan.offload = true;
  const Bytes offloaded = estimate(graph, plan).at(0).bytes;
  EXPECT_EQ(device[Category::host], 0);
  EXPECT_EQ(offloaded[Category::host], 16 * m / 4) << "a rank's part of parameters, gradients and two moments in fp32";
  EXPECT_EQ(offloaded[Category::masters] + offloaded[Category::moments], 0);
  EXPECT_EQ(offloaded.total(), device.total() - device[Category::masters] - device[Category::moments]);
}

TEST(Estimate, OffloadedGradientsAreAddedUpInHostMemory) {
  const graph::Graph graph = gpt(8, 64);
  const std::int64_t unit = 12 * 64 * 64 + 13 * 64;
  const Plan plan{.data = 4, .zero = 3, .gpu = true};
  Plan offloaded = plan;
  offloaded.offload = true;
  EXPECT_EQ(estimate(graph, offloaded).at(0).bytes[Category::gradients], 4 * 2 * unit);
  EXPECT_EQ(estimate(graph, plan).at(0).bytes[Category::gradients], 4 * (2 * unit + graph.parameter_count() / 4));
}

TEST(Estimate, AStageHoldsItsUnitsAndWhatIsInFlight) {
  const graph::Graph graph = gpt(8, 64);
  Plan plan{.pipeline = 4, .samples = 8, .micro_batches = 8};
  const auto kinds = estimate(graph, plan);
  ASSERT_EQ(kinds.size(), 4u);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_EQ(kinds[i].held.at(0).first, i == 0 ? 0 : kinds[i - 1].held.at(0).last);
    EXPECT_EQ(kinds[i].in_flight, 4 - static_cast<std::int64_t>(i));
    sum += kinds[i].parameters;
  }
  EXPECT_EQ(sum, graph.parameter_count());
  plan.schedule = "gpipe";
  EXPECT_EQ(estimate(graph, plan)[3].in_flight, 8);
  plan.schedule = "zero_bubble";
  EXPECT_EQ(estimate(graph, plan)[3].in_flight, 4) << "weight gradients that are put off keep their activations";
  plan.pipeline = 100;
  EXPECT_THAT(message_of<ConfigError>([&] { estimate(graph, plan); }), HasSubstr("parallel.pipeline="));
}

TEST(Estimate, ChunksShareWhatTheirRankHolds) {
  const graph::Graph graph = gpt(8, 64);
  const Plan plan{.pipeline = 2, .samples = 8, .micro_batches = 8, .schedule = "interleaved_1f1b", .chunks = 2};
  const auto kinds = estimate(graph, plan);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].held.size(), 2u);
  EXPECT_EQ(kinds[0].parameters + kinds[1].parameters, graph.parameter_count());
  EXPECT_EQ(kinds[1].in_flight, 3) << "2(S − 1 − rank) + (v − 1)S + 1, each of half a stage";
}

// The loss's logits make the last stage of a wide vocabulary the largest: a limit moves the border, and the slowest stage is slower.
TEST(Estimate, TheCutObeysTheLimit) {
  const graph::Graph graph = gpt(8, 64);
  Plan plan{.pipeline = 2, .samples = 32, .micro_batches = 4};
  const std::int64_t most = largest(estimate(graph, plan)).bytes.total();
  const std::vector<graph::Units> fastest = cut_stages(graph, plan);
  plan.limit = most;
  EXPECT_EQ(cut_stages(graph, plan), fastest);
  plan.limit = most - 1;
  const std::vector<graph::Units> fitting = cut_stages(graph, plan);
  EXPECT_NE(fitting, fastest);
  EXPECT_LE(largest(estimate(graph, plan, fitting)).bytes.total(), plan.limit);
  EXPECT_NO_THROW(require_fit(graph, plan, {.bytes = plan.limit, .source = "train.memory_gb"}));
  plan.limit = 1000;
  EXPECT_EQ(cut_stages(graph, plan), fastest) << "nothing fits, and whoever asks for its memory sees so";
}

TEST(Estimate, MeasuredTimesDecideTheCut) {
  const graph::Graph graph = gpt(8, 64);
  Plan plan{.pipeline = 2};
  plan.times.assign(graph::counted_costs(graph).size(), 1.0);
  plan.times.back() = 100;
  EXPECT_EQ(cut_stages(graph, plan).back().first, plan.times.size() - 1);
}

TEST(Estimate, TheTensorAxisSharesWeightsAndWhatIsBetweenThem) {
  const graph::Graph graph = gpt(8, 64);
  const Bytes one = estimate(graph, {.samples = 4})[0].bytes, two = estimate(graph, {.tensor = 2, .samples = 4})[0].bytes;
  EXPECT_LT(two[Category::parameters], 0.6 * static_cast<double>(one[Category::parameters]));
  EXPECT_LT(two[Category::activations], one[Category::activations]);
  EXPECT_GT(2 * two[Category::activations], one[Category::activations]) << "the residual stream is on both";
  // A layer saves its share of q, k, v, what they mix and the MLP, and four times the stream; attention a sum for each of its rows, the
  // norms two numbers.
  const auto layer = [](const Plan& plan) {
    return estimate(gpt(9, 64), plan)[0].bytes[Category::activations] - estimate(gpt(8, 64), plan)[0].bytes[Category::activations];
  };
  const std::int64_t stream = 64 * 64, sums = 8 * 64, norms = 2 * 2 * 64;
  EXPECT_EQ(layer({.samples = 4}), 4 * 4 * (16 * stream + sums + norms));
  EXPECT_EQ(layer({.tensor = 2, .samples = 4}), 4 * 4 * (10 * stream + sums / 2 + norms));
  EXPECT_EQ(layer({.tensor = 2, .samples = 4, .sequence = true}), 4 * 4 * (8 * stream + sums / 2 + norms / 2)) << "half of the stream";
}

TEST(Estimate, RecomputationKeepsLess) {
  const graph::Graph graph = gpt(16, 64);
  const auto activations = [&](const char* recompute) {
    return estimate(graph, {.samples = 4, .recompute = recompute})[0].bytes[Category::activations];
  };
  EXPECT_LT(4 * activations("units"), activations("none"));
  EXPECT_LT(activations("all"), activations("units"));
}

TEST(Fit, NamesTheCategoryAndTheNearestChangeThatFits) {
  const graph::Graph graph = gpt(16, 128);
  const std::int64_t m = graph.parameter_count();
  const auto refusal = [&](const Plan& plan, std::int64_t limit) {
    return message_of<ConfigError>([&] { require_fit(graph, plan, {.bytes = limit, .source = "train.memory_gb"}); });
  };
  EXPECT_NO_THROW(require_fit(graph, {}, {.bytes = 1 << 30}));
  EXPECT_THAT(refusal({.data = 8, .samples = 1}, 16 * m), AllOf(HasSubstr("moments"), HasSubstr("parallel.zero=1")));
  const Plan wide{.samples = 256};
  EXPECT_THAT(refusal(wide, need_of(graph, wide).bytes / 3), AllOf(HasSubstr("activations"), HasSubstr("train.recompute=units")));
  EXPECT_THAT(refusal({}, 100), HasSubstr("smaller model"));
  const auto change = nearest_fit(graph, {.samples = 1}, {.bytes = 10 * m});
  ASSERT_TRUE(change.has_value());
  EXPECT_THAT(change->settings, AllOf(HasSubstr("--workers "), HasSubstr("--mesh ")));
  EXPECT_LE(change->bytes, 10 * m);
}

TEST(Fit, RanksOfAHostShareItsMemory) {
  const graph::Graph graph = gpt(16, 128);
  const Plan plan{.data = 4, .samples = 1};
  const std::int64_t each = need_of(graph, plan).bytes;
  const auto of_hosts = [&](int hosts) { return Limit{.bytes = 3 * each, .source = "this machine's memory", .places = hosts}; };
  EXPECT_THAT(
      message_of<ConfigError>([&] { require_fit(graph, plan, of_hosts(1)); }),
      AllOf(HasSubstr("this machine's memory"), HasSubstr(readable(3 * each / 4)), HasSubstr("4 ranks"), HasSubstr("parallel.zero=1")));
  EXPECT_NO_THROW(require_fit(graph, plan, of_hosts(2)));
  EXPECT_EQ(nearest_fit(graph, plan, {.bytes = each / 2, .source = "", .places = 1}), std::nullopt) << "more ranks have no more memory";
  // A pipeline's stages differ; what counts is what they need together.
  const Plan stages{.pipeline = 2, .samples = 1};
  const Need need = need_of(graph, stages);
  EXPECT_LT(need.mean, need.bytes);
  EXPECT_NO_THROW(require_fit(graph, stages, {.bytes = 2 * need.mean + 2, .source = "", .places = 1}));
  EXPECT_THAT(message_of<ConfigError>([&] { require_fit(graph, stages, {.bytes = 2 * need.mean - 2, .source = "", .places = 1}); }),
              HasSubstr("2 ranks"));
}

TEST(Fit, SuggestsWhatTheRunAccepts) {
  const graph::Graph graph = gpt(16, 128);
  const std::int64_t m = graph.parameter_count();
  EXPECT_EQ(nearest_fit(graph, {.samples = 1}, {.bytes = 14 * m})->settings, "--workers 2 --mesh data=1,pipeline=2");
  const auto without_pipelines = [](const Plan& plan) {
    if (plan.pipeline > 1) throw ConfigError("no");
    return Settled{plan, "also.this=1"};
  };
  EXPECT_EQ(nearest_fit(graph, {.samples = 1}, {.bytes = 14 * m}, without_pipelines)->settings,
            "--workers 2 --mesh data=1,tensor=2 also.this=1");
  const auto nothing = [](const Plan&) -> Settled { throw ConfigError("no"); };
  EXPECT_EQ(nearest_fit(graph, {.samples = 1}, {.bytes = 14 * m}, nothing), std::nullopt);
  const auto of_one_sample = [](const Plan& plan) {
    Settled settled{plan};
    settled.plan.samples = 1;
    return settled;
  };
  const Plan wide{.samples = 256};
  EXPECT_EQ(nearest_fit(graph, wide, {.bytes = need_of(graph, {.samples = 1}).bytes}, of_one_sample)->settings, "")
      << "what it would be is counted";
}

TEST(Estimate, AHybridChoosesByTheBatchAsItIs) {
  graph::ModelConfig config;
  config.network = "alexnet";
  const graph::Graph graph = graph::make_graph(config);
  // From so many samples on, a row of classifier.1 sends more than its gradients are.
  const std::int64_t even = 9216 * 4096 / (9216 / 4 + 4096);
  ASSERT_NE(even % 4, 0);
  const Plan exact{.data = 4, .samples = (even + 3) / 4, .batch = even - 1, .hybrid = "auto"};
  Plan rounded = exact;
  rounded.batch = 0;
  EXPECT_LT(estimate(graph, exact).at(0).parameters, estimate(graph, rounded).at(0).parameters);
}

TEST(Estimate, CountsATiedTableOnceAndItsCopy) {
  graph::ModelConfig config;
  config.network = "gpt", config.layers = 4, config.width = 32, config.heads = 4, config.input = {16}, config.classes = 512;
  const std::int64_t table = 512 * 32;
  const auto bytes_of = [&](bool tied, const Plan& plan) {
    config.tied = tied;
    std::vector<Bytes> bytes;
    for (const RankKind& kind : estimate(graph::make_graph(config), plan)) bytes.push_back(kind.bytes);
    return bytes;
  };
  EXPECT_EQ(bytes_of(false, {})[0].state() - bytes_of(true, {})[0].state(), 16 * table);
  // The last stage has neither moments nor masters of its copy.
  const Plan pipeline{.pipeline = 2, .micro_batches = 1};
  const Bytes apart = bytes_of(false, pipeline)[1], copy = bytes_of(true, pipeline)[1];
  EXPECT_EQ(apart[Category::parameters], copy[Category::parameters]);
  EXPECT_EQ(apart[Category::gradients], copy[Category::gradients]);
  EXPECT_EQ(apart[Category::moments] - copy[Category::moments], 8 * table);
  EXPECT_EQ(bytes_of(true, pipeline)[0][Category::communication] - bytes_of(false, pipeline)[0][Category::communication], 4 * table);
}

}  // namespace
}  // namespace paceline::memory
