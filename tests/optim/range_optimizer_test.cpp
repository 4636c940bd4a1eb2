#include "paceline/optim/range_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/optim/parallel.h"
#include "tests/optim/reference.h"

namespace paceline::optim {
namespace {

using testing::IsEmpty;

RangeOptimizer made_for(Arena& arena, const OptimConfig& config, double* squared_norm = nullptr) {
  RangeOptimizer optimizer(config, odd_segments(), std::ssize(arena.parameters), /*cuda=*/false);
  RangeOptimizer::Memory memory{.parameters = arena.parameters.data(), .squared_norm = squared_norm};
  for (auto& state : arena.state) memory.state.push_back(state.data());
  optimizer.bind(std::move(memory));
  return optimizer;
}

Arena arena_for(const OptimConfig& config) {
  Arena arena(arena_size(odd_segments()), make_optimizer(config)->state_names().size());
  arena.draw_gradients(1);
  return arena;
}

TEST(RangeOptimizer, HasTheSameBitsForTheWholeForPartsAndForBlocks) {
  const Hyper hyper{.rate = 0.05f, .gradient_scale = 0.5f, .step = 3};
  for (const char* name : {"sgd", "adam", "adamw"}) {
    const OptimConfig config{.name = name, .weight_decay = 0.01};
    Arena whole = arena_for(config), parts = whole, blocks = whole;
    made_for(whole, config).update(whole.gradients.data(), hyper);

    RangeOptimizer in_parts = made_for(parts, config);
    const std::int64_t length = std::ssize(parts.parameters);
    const std::int64_t cuts[] = {0, 5, length / 3, length / 2 + 1, length};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) in_parts.update(parts.gradients.data(), {cuts[i], cuts[i + 1], cuts[i]}, hyper);

    std::atomic<std::int64_t> updated = 0;
    std::int64_t expected = 0;
    for (const Segment& segment : odd_segments()) expected += segment.count;
    made_for(blocks, config)
        .update_in_blocks(
            hyper,
            [&](const Block& block, float* gradients) { std::copy_n(blocks.gradients.data() + block.offset, block.count, gradients); },
            [&](const Block& block) { updated += block.count; });
    EXPECT_EQ(updated, expected) << name;
    for (const Arena* other : {&parts, &blocks}) {
      EXPECT_EQ(other->parameters, whole.parameters) << name;
      EXPECT_EQ(other->state, whole.state) << name;
    }
  }
}

TEST(RangeOptimizer, ClipsByTheNormOfTheWholeRange) {
  const OptimConfig config{.momentum = 0, .clip_norm = 1e-3};
  Arena clipped = arena_for(config), scaled = clipped;
  double norm = 0;
  RangeOptimizer optimizer = made_for(clipped, config, &norm);
  ASSERT_TRUE(optimizer.clips());
  optimizer.update(clipped.gradients.data(), {.rate = 1});
  EXPECT_EQ(norm, squared_norm(scaled.gradients.data(), std::ssize(scaled.gradients)));
  const auto scale = static_cast<float>(1e-3 / std::sqrt(norm));
  made_for(scaled, {.momentum = 0}).update(scaled.gradients.data(), {.rate = 1, .gradient_scale = scale});
  for (std::size_t i = 0; i < scaled.parameters.size(); ++i) ASSERT_NEAR(clipped.parameters[i], scaled.parameters[i], 1e-6) << i;
}

TEST(RangeOptimizer, UpdatesTensorsWholeWhereTheirNormDecides) {
  const OptimConfig config{.name = "lars"};
  Arena arena = arena_for(config);
  RangeOptimizer optimizer = made_for(arena, config);
  EXPECT_FALSE(optimizer.elementwise());
  const Segment first = odd_segments()[1];
  EXPECT_NO_THROW(optimizer.update(arena.gradients.data(), {first.offset, first.offset + first.count, first.offset}, {.rate = 0.1f}));
  EXPECT_THROW(optimizer.update(arena.gradients.data(), {first.offset, first.offset + first.count - 1, first.offset}, {.rate = 0.1f}),
               InternalError);
}

// Two ranks hold the range in parts that end in the middle of tensors, and add up their squares between the halves of an update.
TEST(RangeOptimizer, MakesItsUpdateInTwoHalvesWhereRanksHoldPieces) {
  for (const char* name : {"lars", "lamb"}) {
    const OptimConfig config{.name = name, .weight_decay = 0.01};
    Arena whole = arena_for(config), first = whole, second = whole;
    const std::int64_t length = std::ssize(whole.parameters), cut = length / 3, end = length - 40;
    const std::vector<Stretch> of_first = {{0, cut, 0}, {end, length, end}}, of_second = {{cut, end, cut}};
    RangeOptimizer in_one = made_for(whole, config), in_first = made_for(first, config), in_second = made_for(second, config);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const Hyper hyper{.rate = 0.05f, .gradient_scale = 0.5f, .step = step};
      for (Arena* arena : {&whole, &first, &second}) arena->draw_gradients(static_cast<std::uint64_t>(step));
      in_one.update(whole.gradients.data(), hyper);
      std::vector<Squares> squares(odd_segments().size());
      const auto both = [&](const auto& half) {
        for (const Stretch& stretch : of_first) half(in_first, first, stretch);
        for (const Stretch& stretch : of_second) half(in_second, second, stretch);
      };
      both([&](RangeOptimizer& optimizer, Arena& arena, const Stretch& stretch) {
        optimizer.measure(arena.gradients.data(), stretch, hyper, nullptr, /*clipped=*/false, squares.data());
      });
      both([&](RangeOptimizer& optimizer, Arena& arena, const Stretch& stretch) {
        optimizer.move(arena.gradients.data(), stretch, hyper, nullptr, /*clipped=*/false, squares.data());
      });
    }
    for (std::int64_t i = 0; i < length; ++i)
      ASSERT_NEAR((cut <= i && i < end ? second : first).parameters[static_cast<std::size_t>(i)],
                  whole.parameters[static_cast<std::size_t>(i)], 1e-6)
          << name << ", element " << i;
  }
}

TEST(RangeOptimizer, DecaysNormsWhereTheRecipeSaysSo) {
  const std::vector<Segment> segments = {{0, 4, true}, {16, 4, false}};
  EXPECT_FALSE(RangeOptimizer({}, segments, 20, false).segments()[1].decay);
  EXPECT_TRUE(RangeOptimizer({.decay_norms = true}, segments, 20, false).segments()[1].decay);
}

TEST(SegmentsWithin, CutsTheFirstAndTheLast) {
  const std::vector<Segment> segments = {{0, 10, true}, {16, 10, false}, {32, 10, true}};
  const auto within = [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::tuple<std::int64_t, std::int64_t, bool>> result;
    for (const Segment& segment : segments_within(segments, begin, end)) result.emplace_back(segment.offset, segment.count, segment.decay);
    return result;
  };
  using Parts = std::vector<std::tuple<std::int64_t, std::int64_t, bool>>;
  EXPECT_EQ(within(0, 42), (Parts{{0, 10, true}, {16, 10, false}, {32, 10, true}}));
  EXPECT_EQ(within(4, 33), (Parts{{4, 6, true}, {16, 10, false}, {32, 1, true}}));
  EXPECT_EQ(within(18, 20), (Parts{{18, 2, false}}));
  EXPECT_THAT(within(10, 16), IsEmpty());
}

}  // namespace
}  // namespace paceline::optim
