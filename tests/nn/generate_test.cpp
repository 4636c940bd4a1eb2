// Texts from a network: what it says of the next token does not depend on the cache, and tokens are drawn as asked.
#include "paceline/nn/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "tests/message_of.h"

namespace paceline::nn {
namespace {

constexpr std::int64_t kWindow = 12, kWords = 11;

std::shared_ptr<GraphModule> generating_gpt(bool tied = false) {
  graph::ModelConfig config;
  config.network = "gpt", config.input = {kWindow}, config.classes = kWords, config.layers = 2, config.width = 12, config.heads = 3;
  config.tied = tied;
  GraphModule::Options options;
  options.dtype = c10::kDouble;
  options.seed = 5;
  auto module = std::make_shared<GraphModule>(graph::make_graph(config), options);
  at::Tensor(module->arena().parameters()).mul_(8);  // first weights are so small that all tokens are alike
  module->refresh();
  return module;
}

at::Tensor plain_logits(GraphModule& module, const at::Tensor& tokens) {
  Pass pass;
  pass.training = false;
  return module.run(tokens, pass, nullptr);
}

TEST(Decoder, SaysOfEveryPieceWhatOnePassSays) {
  for (const bool tied : {false, true}) {
    const auto module = generating_gpt(tied);
    const at::Tensor tokens = at::remainder(at::arange(2 * kWindow) * 7 + 3, kWords).reshape({2, kWindow});
    const at::Tensor whole = plain_logits(*module, tokens);
    Decoder decoder(*module);
    ASSERT_EQ(decoder.positions(), kWindow);
    for (int round = 0; round < 2; ++round, decoder.clear()) {
      for (const std::int64_t count : {3, 1, 1, 4, 1, 2}) {
        const at::Tensor logits = decoder.read(tokens.narrow(1, decoder.length(), count));
        EXPECT_TRUE(at::allclose(logits, whole.select(1, decoder.length() - 1), 1e-10, 1e-12)) << decoder.length();
      }
      EXPECT_EQ(decoder.room(), 0);
    }
  }
}

TEST(Decoder, NetworksOfPicturesHaveNone) {
  graph::ModelConfig config;
  config.network = "mlp", config.input = {1, 4, 4}, config.classes = 3, config.hidden = {4};
  GraphModule module(graph::make_graph(config), {});
  EXPECT_THAT(message_of<ConfigError>([&] { Decoder decoder(module); }), testing::HasSubstr("'mlp'"));
}

TEST(Generate, WithoutChanceItIsWhatTheWholeTextSaysEachTime) {
  const auto made_here = generating_gpt();
  GraphModule& module = *made_here;
  std::vector<std::int64_t> text = {1, 4}, made;
  generate(module, kWords, text, kWindow - 2, {.temperature = 0}, [&](std::int64_t token) { return made.push_back(token), true; });
  ASSERT_EQ(std::ssize(made), kWindow - 2);
  for (const std::int64_t token : made) {
    const at::Tensor logits = plain_logits(module, at::tensor(text, at::kLong).unsqueeze(0));
    EXPECT_EQ(token, logits[0][std::ssize(text) - 1].argmax().item<std::int64_t>());
    text.push_back(token);
  }
}

TEST(Generate, ATextMayBeLongerThanTheContext) {
  const auto made_here = generating_gpt();
  GraphModule& module = *made_here;
  const auto texts = [&](std::vector<std::int64_t> prompt, std::uint64_t seed) {
    std::vector<std::int64_t> made;
    generate(module, kWords, std::move(prompt), 40, {.seed = seed}, [&](std::int64_t token) { return made.push_back(token), true; });
    return made;
  };
  EXPECT_EQ(texts({1}, 3).size(), 40u);
  EXPECT_EQ(texts({1}, 3), texts({1}, 3));
  EXPECT_NE(texts({1}, 3), texts({1}, 4));
  // Of a prompt that is too long, the last positions count.
  std::vector<std::int64_t> prompt(30, 2), other(30, 2);
  other[30 - kWindow - 1] = 9;
  EXPECT_EQ(texts(prompt, 3), texts(other, 3));
  other[30 - kWindow] = 9;
  EXPECT_NE(texts(prompt, 3), texts(other, 3));
  // The 12 positions are full after 11 tokens; the next one comes from the last 6.
  std::vector<std::int64_t> text = {1};
  generate(module, kWords, {1}, 13, {.temperature = 0}, [&](std::int64_t token) { return text.push_back(token), true; });
  const std::vector<std::int64_t> half(text.end() - 1 - kWindow / 2, text.end() - 1);
  EXPECT_EQ(text.back(), plain_logits(module, at::tensor(half, at::kLong).unsqueeze(0))[0][kWindow / 2 - 1].argmax().item<std::int64_t>());
}

TEST(Generate, EndsWhenItIsTold) {
  const auto made_here = generating_gpt();
  GraphModule& module = *made_here;
  int made = 0;
  generate(module, kWords, {1}, 40, {}, [&](std::int64_t) { return ++made < 5; });
  EXPECT_EQ(made, 5);
}

TEST(DrawToken, TemperatureTopKAndPaddingCount) {
  const at::Tensor logits = at::tensor({0.0, 2.0, 1.0, -1.0, 50.0}, at::kFloat);  // the last one pads the vocabulary
  RandomStream random(1, Purpose::test);
  const auto shares = [&](const Sampling& sampling) {
    std::map<std::int64_t, double> found;
    constexpr int kDraws = 10000;
    for (int i = 0; i < kDraws; ++i) found[draw_token(logits, 4, sampling, random)] += 1.0 / kDraws;
    return found;
  };
  EXPECT_EQ(draw_token(logits, 4, {.temperature = 0}, random), 1);
  EXPECT_EQ(draw_token(logits, 5, {.temperature = 0}, random), 4);
  EXPECT_EQ(shares({.top_k = 1}).size(), 1u);
  const auto all = shares({});
  const double sum = 1 + std::exp(2) + std::exp(1) + std::exp(-1);
  EXPECT_EQ(all.size(), 4u);
  EXPECT_NEAR(all.at(1), std::exp(2) / sum, 0.02);
  EXPECT_NEAR(all.at(3), std::exp(-1) / sum, 0.02);
  const auto two = shares({.temperature = 0.5, .top_k = 2});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(2), std::exp(2) / (std::exp(2) + std::exp(4)), 0.02);
}

}  // namespace
}  // namespace paceline::nn
