// Error feedback and momentum correction against the formulas of feedback.h.
#include "paceline/compress/feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace paceline::compress
