#include "paceline/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "paceline/optim/cuda_optimizer.h"
#include "paceline/optim/rules/element.h"
#include "tests/optim/reference.h"

namespace paceline::optim {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Threads {
 public:
  explicit Threads(int threads) { omp_set_num_threads(threads); }
  ~Threads() { omp_set_num_threads(before_); }

 private:
  int before_ = omp_get_max_threads();
};

class OptimizerTest : public testing::TestWithParam<OptimConfig> {
 protected:
  /// Three steps over the tensors in the given parts.
  Arena run(const std::vector<std::span<const Segment>>& parts) {
    const auto optimizer = make_optimizer(GetParam());
    Arena arena(arena_size(segments), optimizer->state_names().size());
    for (std::int64_t step = 1; step <= 3; ++step) {
      arena.draw_gradients(static_cast<std::uint64_t>(step));
      for (const auto& part : parts) optimizer->update(arena.buffers(), part, {.rate = 0.05f, .gradient_scale = 0.5f, .step = step}, false);
    }
    return arena;
  }

  const std::vector<Segment> segments = odd_segments();
};

TEST_P(OptimizerTest, FollowsItsFormula) {
  const auto optimizer = make_optimizer(GetParam());
  Arena arena(arena_size(segments), optimizer->state_names().size());
  const Arena start = arena;
  const std::size_t size = arena.parameters.size();
  Reference reference{
      GetParam(), segments, {start.parameters.begin(), start.parameters.end()}, std::vector<double>(size), std::vector<double>(size)};

  for (int step = 1; step <= 5; ++step) {
    const float rate = 0.1f / static_cast<float>(step), scale = step == 3 ? 0.25f : 1.0f;
    arena.draw_gradients(static_cast<std::uint64_t>(step));
    std::vector<double> gradients(arena.gradients.begin(), arena.gradients.end());
    for (double& value : gradients) value *= scale;
    optimizer->update(arena.buffers(), segments, {.rate = rate, .gradient_scale = scale, .step = step}, false);
    reference.step(gradients, rate, step);
  }

  std::vector<bool> inside(size, false);
  for (const Segment& segment : segments) std::fill_n(inside.begin() + segment.offset, segment.count, true);
  for (std::size_t i = 0; i < size; ++i) {
    if (inside[i]) {
      ASSERT_NEAR(arena.parameters[i], reference.weights[i], 5e-6) << "element " << i;
      for (std::size_t k = 0; k < arena.state.size(); ++k)
        ASSERT_NEAR(arena.state[k][i], (k == 0 ? reference.first : reference.second)[i], 5e-6) << "element " << i << " of state " << k;
    } else {
      ASSERT_EQ(arena.parameters[i], start.parameters[i]) << "touched element " << i << " between two tensors";
    }
  }
}

TEST_P(OptimizerTest, RangesInAnyOrderGiveTheBitsOfTheWhole) {
  const Arena whole = run({segments});
  RandomStream random(3, Purpose::test);
  for (int trial = 0; trial < 3; ++trial) {
    std::vector<std::span<const Segment>> parts;
    for (std::span<const Segment> rest = segments; !rest.empty();) {
      const auto length = 1 + random.below(rest.size());
      parts.push_back(rest.first(length));
      rest = rest.subspan(length);
    }
    random.shuffle(std::span(parts));
    EXPECT_TRUE(run(parts) == whole) << parts.size() << " parts";
  }
}

TEST_P(OptimizerTest, AnyNumberOfThreadsGivesTheSameBits) {
  const auto with = [&](int threads) {
    const Threads scope(threads);
    return run({segments});
  };
  const Arena one = with(1);
  for (int threads : {2, 3}) EXPECT_TRUE(with(threads) == one) << threads << " threads";
}

TEST_P(OptimizerTest, ZeroesTheGradientsInTheSamePass) {
  const auto optimizer = make_optimizer(GetParam());
  Arena kept(arena_size(segments), optimizer->state_names().size()), zeroed = kept;
  optimizer->update(kept.buffers(), segments, {.rate = 0.1f}, false);
  optimizer->update(zeroed.buffers(), segments, {.rate = 0.1f}, true);
  EXPECT_EQ(kept.parameters, zeroed.parameters);
  EXPECT_EQ(kept.state, zeroed.state);
  for (const Segment& segment : segments) EXPECT_THAT(std::span(zeroed.gradients).subspan(segment.offset, segment.count), Each(0.0f));
  EXPECT_NE(zeroed.gradients.front(), 0) << "zeroed outside of the tensors";
}

TEST_P(OptimizerTest, ClipsToTheNormThatItIsGiven) {
  OptimConfig config = GetParam();
  config.clip_norm = 0.5;
  const auto optimizer = make_optimizer(config);
  Arena clipped(arena_size(segments), optimizer->state_names().size()), scaled = clipped;
  const double norm = squared_norm(clipped.gradients.data(), static_cast<std::int64_t>(clipped.gradients.size()));
  Buffers buffers = clipped.buffers();
  buffers.squared_norm = &norm;
  optimizer->update(buffers, segments, {.rate = 0.1f, .gradient_scale = 0.5f}, false);
  optimizer->update(scaled.buffers(), segments, {.rate = 0.1f, .gradient_scale = static_cast<float>(0.5 / (std::sqrt(norm) + 2e-6))},
                    false);
  for (std::size_t i = 0; i < clipped.parameters.size(); ++i) ASSERT_NEAR(clipped.parameters[i], scaled.parameters[i], 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Every, OptimizerTest, testing::ValuesIn(all_variants()),
                         [](const auto& variant) { return variant_name(variant.param); });

OptimConfig config_of(const std::string& name) { return {.name = name, .momentum = 0.5, .weight_decay = 0.1, .trust = 0.01}; }

/// One tensor of one or two elements through one or two steps, small enough to follow by hand.
TEST(Sgd, AHandComputedStep) {
  Arena arena(1, 1);
  arena.parameters = {2};
  arena.gradients = {1};
  const Segment segment{.offset = 0, .count = 1};
  const auto optimizer = make_optimizer(config_of("sgd"));
  optimizer->update(arena.buffers(), {&segment, 1}, {.rate = 0.5f}, false);
  EXPECT_FLOAT_EQ(arena.state[0][0], 1.2f);    // 1 + 0.1·2
  EXPECT_FLOAT_EQ(arena.parameters[0], 1.4f);  // 2 − 0.5·1.2
  optimizer->update(arena.buffers(), {&segment, 1}, {.rate = 0.5f, .step = 2}, false);
  EXPECT_FLOAT_EQ(arena.state[0][0], 1.74f);  // 0.5·1.2 + 1 + 0.1·1.4
  EXPECT_FLOAT_EQ(arena.parameters[0], 0.53f);
}

TEST(Lars, AHandComputedStep) {
  Arena arena(2, 1);
  arena.parameters = {3, 4};
  arena.gradients = {0, 2};
  const Segment segment{.offset = 0, .count = 2};
  make_optimizer(config_of("lars"))->update(arena.buffers(), {&segment, 1}, {.rate = 1}, false);
  const float trust = 0.01f * 5 / (2 + 0.1f * 5);
  EXPECT_FLOAT_EQ(arena.parameters[0], 3 - trust * 0.3f);
  EXPECT_FLOAT_EQ(arena.parameters[1], 4 - trust * 2.4f);
}

TEST(Lamb, TheFirstStepIsAsLongAsTheRateTimesTheParameters) {
  Arena arena(2, 2);
  arena.parameters = {3, 4};
  arena.gradients = {0.3f, -7};
  const Segment segment{.offset = 0, .count = 2};
  OptimConfig config{.name = "lamb"};
  make_optimizer(config)->update(arena.buffers(), {&segment, 1}, {.rate = 0.1f}, false);
  const float length = 0.1f * 5 / std::sqrt(2.0f);  // the direction is (1, −1) after the bias correction
  EXPECT_NEAR(arena.parameters[0], 3 - length, 1e-6);
  EXPECT_NEAR(arena.parameters[1], 4 + length, 1e-6);
}

TEST(Lars, TensorsOfZerosTakeThePlainStep) {
  for (const char* name : {"lars", "lamb"}) {
    const auto optimizer = make_optimizer(config_of(name));
    Arena arena(8, optimizer->state_names().size());
    std::fill(arena.parameters.begin(), arena.parameters.end(), 0.0f);
    const Segment segment{.offset = 0, .count = 8};
    optimizer->update(arena.buffers(), {&segment, 1}, {.rate = 0.1f}, false);
    for (float value : arena.parameters) EXPECT_TRUE(std::isfinite(value) && value != 0) << name;
  }
}

TEST(SquaredNorm, IsAccurateAndTheSameOnAnyNumberOfThreads) {
  std::vector<float> values(300'007);
  RandomStream random(5, Purpose::test);
  for (float& value : values) value = random.normal();
  const auto size = static_cast<std::int64_t>(values.size());
  long double exact = 0;
  for (const long double value : values) exact += value * value;
  double one = 0;
  for (int threads : {1, 2, 3}) {
    const Threads scope(threads);
    const double norm = squared_norm(values.data(), size);
    EXPECT_NEAR(static_cast<double>(norm / exact), 1, 1e-13);
    if (threads == 1) one = norm;
    EXPECT_EQ(norm, one) << threads << " threads";
  }
  EXPECT_EQ(squared_norm(values.data(), 0), 0);
  const std::vector<float> huge(5, 1e30f);
  EXPECT_NEAR(squared_norm(huge.data(), 5), 5e60, 1e54) << "squares beyond float";
}

TEST(ClippedScale, LeavesShortGradientsAlone) {
  EXPECT_EQ(clipped_scale(0.5f, 4.0, 0), 0.5f);
  EXPECT_EQ(clipped_scale(0.5f, 4.0, 1.1), 0.5f);
  EXPECT_NEAR(clipped_scale(0.5f, 16.0, 1), 0.25, 1e-6);  // ‖0.5 g‖ = 2
}

std::string error_of(const OptimConfig& config) {
  try {
    make_optimizer(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(OptimConfigTest, NonsenseIsRefused) {
  EXPECT_THAT(error_of({.name = "adan"}), HasSubstr("did you mean 'adam'"));
  EXPECT_THAT(error_of({.momentum = 0, .nesterov = true}), HasSubstr("optim.nesterov needs a momentum above 0"));
  EXPECT_THAT(error_of({.name = "adam", .nesterov = true}), HasSubstr("belongs to sgd and lars, not to adam"));
  EXPECT_THAT(error_of({.name = "adam", .beta2 = 1}), HasSubstr("below 1"));
  EXPECT_EQ(error_of({.nesterov = true}), "");
}

TEST(OptimConfigTest, ARecipeFillsIt) {
  OptimConfig optim;
  Config config;
  config.bind("optim", "the optimizer", optim);
  config.set("optim.name=lars");
  config.set("optim.trust=0.02");
  EXPECT_EQ(optim.name, "lars");
  EXPECT_EQ(optim.trust, 0.02);
  EXPECT_THROW(config.set("optim.name=sdg"), ConfigError);
  EXPECT_THROW(config.set("optim.rate=-1"), ConfigError);
}

TEST(OptimizerContract, StatesAreNamedAndMistakesOfTheCallerAreBugs) {
  EXPECT_THAT(make_optimizer({.name = "sgd"})->state_names(), ElementsAre("momentum"));
  EXPECT_THAT(make_optimizer({.name = "sgd", .momentum = 0})->state_names(), ElementsAre());
  EXPECT_THAT(make_optimizer({.name = "adam"})->state_names(), ElementsAre("first_moment", "second_moment"));
  Arena arena(4, 1);
  const Segment segment{.offset = 0, .count = 4};
  EXPECT_THROW(make_optimizer({.name = "adam"})->update(arena.buffers(), {&segment, 1}, {.rate = 1}, false), InternalError);
  EXPECT_THROW(make_optimizer({.name = "sgd"})->update(arena.buffers(), {&segment, 1}, {.rate = 1, .step = 0}, false), InternalError);
  const Arena before = arena;
  make_optimizer({.name = "sgd"})->update(arena.buffers(), {}, {.rate = 1}, true);
  EXPECT_TRUE(arena == before);
}

#if !PACELINE_WITH_CUDA
TEST(CudaOptimizer, IsRefusedInABuildWithoutCuda) {
  const auto segments = odd_segments();
  EXPECT_THROW(make_cuda_optimizer({}, segments), ConfigError);
}
#endif

}  // namespace
}  // namespace paceline::optim
