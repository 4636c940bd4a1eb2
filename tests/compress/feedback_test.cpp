// Error feedback and momentum correction against the formulas of feedback.h.
#include "paceline/compress/feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

struct Memory {
  std::vector<float> residual = std::vector<float>(3), velocity = std::vector<float>(3);
  Feedback::Kept kept() { return {residual.data(), velocity.data(), 3}; }
};

Feedback feedback_of(const char* key, const CompressConfig& config, double momentum, int workers = 1) {
  return {find(compressors(), "compressor", key).make, config, momentum, workers, 3};
}

TEST(Feedback, AddsWhatWasNotSaidToTheNextGradient) {
  const Feedback feedback = feedback_of("topk", {}, 0.9);
  Memory memory;
  const std::vector<float> gradient = {1, 2, -4};
  feedback.add(gradient.data(), memory.kept());
  memory.residual[2] = 0;  // sent
  feedback.said(memory.kept());
  feedback.add(gradient.data(), memory.kept());
  EXPECT_THAT(memory.residual, ElementsAre(2, 4, -4));
}

TEST(Feedback, KeepsNothingWhereItIsOff) {
  CompressConfig config;
  config.feedback = "off";
  const Feedback feedback = feedback_of("topk", config, 0);
  Memory memory;
  const std::vector<float> gradient = {1, 2, -4};
  feedback.add(gradient.data(), memory.kept());
  feedback.said(memory.kept());
  EXPECT_THAT(memory.residual, ElementsAre(0, 0, 0));
}

TEST(Feedback, OfDgcAddsVelocitiesAndForgetsThoseThatWereSent) {
  const Feedback feedback = feedback_of("dgc", {}, 0.5);
  Memory memory;
  const std::vector<float> gradient = {1, 2, -4};
  feedback.add(gradient.data(), memory.kept());  // u = g, v = g
  memory.residual[2] = 0;                        // sent: u and v begin again there
  feedback.said(memory.kept());
  EXPECT_THAT(memory.velocity, ElementsAre(1, 2, 0));
  feedback.add(gradient.data(), memory.kept());  // u = 0.5 u + g, v = v + u
  EXPECT_THAT(memory.velocity, ElementsAre(1.5f, 3, -4));
  EXPECT_THAT(memory.residual, ElementsAre(2.5f, 5, -4));
}

TEST(Feedback, OfDgcClipsAWorkersShareOfTheNorm) {
  CompressConfig config;
  config.dgc_clip = 6;
  const Feedback feedback = feedback_of("dgc", config, 0, 4);  // a worker of four may have a norm of 3
  Memory memory;
  const std::vector<float> longer = {4, 4, -2}, shorter = {1, 2, 2};  // norms of 6 and 3
  feedback.add(longer.data(), memory.kept());
  EXPECT_THAT(memory.residual, ElementsAre(FloatEq(2), FloatEq(2), FloatEq(-1)));
  memory = {};
  feedback.add(shorter.data(), memory.kept());
  EXPECT_THAT(memory.residual, ElementsAre(FloatEq(1), FloatEq(2), FloatEq(2)));
}

// Lin et al.'s algorithm over many steps, in double: what is sent, what stays, and that both u and v begin again where something was sent.
TEST(Feedback, OfDgcFollowsItsRecursion) {
  constexpr std::size_t kValues = 500, kSent = 25;
  constexpr double kMomentum = 0.9;
  const RangeLayout layout = one_part(kValues);
  CompressConfig config;
  config.density = 0.05, config.warmup_epochs = 0;
  const auto worker = coder("dgc", config);
  const Feedback feedback(find(compressors(), "compressor", "dgc").make, config, kMomentum, 1, kValues);
  std::vector<float> residual(kValues), velocity(kValues);
  std::vector<double> u(kValues), v(kValues);
  for (std::uint64_t step = 1; step <= 40; ++step) {
    const std::vector<float> g = gradient(layout, step);
    const Feedback::Kept kept{residual.data(), velocity.data(), kValues};
    feedback.add(g.data(), kept);
    const std::vector<float> sent = decode(*worker, layout, encode(*worker, layout, residual));
    feedback.said(kept);

    std::vector<std::size_t> order(kValues);
    for (std::size_t i = 0; i < kValues; ++i) u[i] = kMomentum * u[i] + g[i], v[i] += u[i], order[i] = i;
    std::ranges::nth_element(order, order.begin() + kSent - 1, std::greater<>(), [&](std::size_t i) { return std::abs(v[i]); });
    std::vector<double> expected(kValues);
    for (std::size_t k = 0; k < kSent; ++k) expected[order[k]] = v[order[k]], u[order[k]] = v[order[k]] = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(sent[i], expected[i], 1e-6) << "value " << i << " of step " << step;
      ASSERT_NEAR(residual[i], v[i], 1e-6) << "value " << i << " of step " << step;
      ASSERT_NEAR(velocity[i], u[i], 1e-6) << "value " << i << " of step " << step;
    }
  }
}

}  // namespace
}  // namespace paceline::compress
