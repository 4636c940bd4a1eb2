// That what runs is what the schedule says: every lowering against the steps of the algorithm that declares it, which a player executes.
#include "paceline/comm/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "paceline/base/half.h"
#include "paceline/base/random.h"
#include "tests/comm/lowered_ranks.h"
#include "tests/schedule/player.h"

namespace paceline::comm {
namespace {

using schedule::Collective;
using schedule::Problem;
using schedule::Range;
using schedule::Step;

// Numbers
// -----------------------------------------------------------------------------------------------------------------------------------

/// One element for the player, added as comm adds two buffers of one element.
struct Element {
  std::array<std::byte, 8> bits{};
  const Kind* kind = nullptr;
  friend Element operator+(Element a, const Element& b) {
    combine(a.kind->dtype, a.kind->op, a.bits.data(), b.bits.data(), 1);
    return a;
  }
};

/// Numbers of very different sizes and both signs: another order of additions gives other bits nearly always.
double adversarial(RandomStream& random) {
  const double size = std::ldexp(1.0, static_cast<int>(random.below(10)) - 5);
  return (random.below(2) == 0 ? -1 : 1) * size * (1 + random.uniform_double());
}

void store(DType dtype, std::byte* at, double value) {
  const auto put = [&](auto number) { std::memcpy(at, &number, sizeof(number)); };
  switch (dtype) {
    case DType::f32: return put(static_cast<float>(value));
    case DType::f64: return put(value * (1 + std::ldexp(value, -60)));
    case DType::f16: return put(Float16::from(static_cast<float>(value)));
    case DType::bf16: return put(BFloat16::from(static_cast<float>(value)));
    case DType::i8: return put(static_cast<std::int8_t>(std::fmod(value, 100)));
    case DType::u8: return put(static_cast<std::uint8_t>(std::fabs(std::fmod(value, 200))));
    case DType::i32: return put(static_cast<std::int32_t>(value));
    case DType::i64: return put(static_cast<std::int64_t>(value));
  }
}

std::vector<Bytes> inputs_of(const Problem& problem, DType dtype, std::uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < problem.size; ++rank) {
    RandomStream random(seed, Purpose::test, static_cast<std::uint64_t>(rank));
    Bytes& values = inputs.emplace_back(static_cast<std::size_t>(problem.count * size_of(dtype)));
    for (std::int64_t i = 0; i < problem.count; ++i) store(dtype, values.data() + i * size_of(dtype), adversarial(random));
  }
  return inputs;
}

// The schedule
// ------------------------------------------------------------------------------------------------------------------------------

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reduce_scatter || collective == Collective::reduce;
}

/// What every rank's buffer holds after the steps.
std::vector<Bytes> by_steps(const schedule::Algorithm& algorithm, const Problem& problem, const Kind& kind,
                            const std::vector<Bytes>& inputs) {
  const auto width = static_cast<std::size_t>(size_of(kind.dtype));
  std::vector<std::vector<Element>> elements;
  for (const Bytes& input : inputs) {
    auto& own = elements.emplace_back(static_cast<std::size_t>(problem.count), Element{.kind = &kind});
    for (std::size_t i = 0; i < own.size(); ++i) std::memcpy(own[i].bits.data(), input.data() + i * width, width);
  }
  schedule::Player<Element> player(problem, schedule::all_steps(algorithm, problem), elements);
  EXPECT_EQ(player.play([](std::size_t) { return std::size_t{0}; }), "");
  std::vector<Bytes> results;
  for (int rank = 0; rank < problem.size; ++rank) {
    Bytes& bytes = results.emplace_back(static_cast<std::size_t>(problem.count) * width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(problem.count); ++i)
      std::memcpy(bytes.data() + i * width, player.buffer(rank)[i].bits.data(), width);
    if (kind.op == ReduceOp::mean && reduces(problem.collective)) divide(kind.dtype, bytes.data(), problem.count, problem.size);
  }
  return results;
}

Lengths across_by_steps(const schedule::Algorithm& algorithm, Problem problem, DType dtype) {
  Lengths lengths;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank)
    for (const Step& step : algorithm.steps(problem))
      if (step.leaves() && step.peer / problem.per_host != problem.rank / problem.per_host)
        lengths[{problem.rank, step.peer}].insert(step.range.size() * size_of(dtype));
  return lengths;
}

Moved inside_by_steps(const schedule::Algorithm& algorithm, Problem problem, DType dtype) {
  Moved moved;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank)
    for (const Step& step : algorithm.steps(problem))
      if (step.leaves() && step.range.size() > 0 && step.peer / problem.per_host == problem.rank / problem.per_host)
        moved[{problem.rank, step.peer}] += step.range.size() * size_of(dtype);
  return moved;
}

// Both
// --------------------------------------------------------------------------------------------------------------------------------------

/// The elements of a rank's buffer that the collective defines.
Range promised(const Problem& p, int rank) {
  if (p.collective == Collective::reduce_scatter) return schedule::part(p.count, p.size, rank);
  if (p.collective == Collective::reduce && rank != p.root) return {0, 0};
  return {0, p.count};
}

std::int64_t total(const Moved& moved) {
  std::int64_t sum = 0;
  for (const auto& [ranks, bytes] : moved) sum += bytes;
  return sum;
}

void expect_same(std::string_view key, Problem problem, const Kind& kind, bool hidden) {
  const schedule::Algorithm& algorithm = schedule::algorithm_for(key, problem.collective).make;
  problem = algorithm.sized(problem, problem.count * size_of(kind.dtype), /*shares_memory=*/true);
  ASSERT_TRUE(algorithm.lowering.covers(problem));
  const std::vector<Bytes> inputs = inputs_of(problem, kind.dtype, 17);
  const std::vector<Bytes> expected = by_steps(algorithm, problem, kind, inputs);
  const Ran ran = by_lowering(find(lowerings(), "lowering", key).make, problem, kind, inputs, hidden);
  const std::string what = fmt::format("{}: {} {} {}{}", key, schedule::describe(problem), name_of(kind.dtype), name_of(kind.op),
                                       hidden ? ", private memory" : "");
  for (int rank = 0; rank < problem.size; ++rank) {
    const Range range = promised(problem, rank);
    const std::int64_t width = size_of(kind.dtype);
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_EQ(std::memcmp(ran.results[at].data() + range.begin * width, expected[at].data() + range.begin * width,
                          static_cast<std::size_t>(range.size() * width)),
              0)
        << what << ": rank " << rank << " has other bits than the schedule";
  }
  EXPECT_EQ(ran.across, across_by_steps(algorithm, problem, kind.dtype)) << what;
  // The ranks divide the work of each window, not of the whole buffer: where there are several, who sums an element is another rank.
  const Moved expected_inside = inside_by_steps(algorithm, problem, kind.dtype);
  const bool windows = hidden && problem.count * size_of(kind.dtype) > shared::kWindow;
  if (windows) EXPECT_EQ(total(ran.inside), total(expected_inside)) << what;
  else EXPECT_EQ(ran.inside, expected_inside) << what;
}

std::vector<std::string_view> lowered() {
  std::vector<std::string_view> keys;
  for (const auto& row : schedule::algorithms())
    if (row.make.lowering) keys.push_back(row.key);
  return keys;
}

TEST(Lowering, EveryDeclarationHasItsPath) {
  std::vector<std::string_view> paths;
  for (const auto& row : lowerings()) paths.push_back(row.key);
  EXPECT_EQ(paths, lowered());
}

/// Every problem of a few ranks that a lowering covers.
std::vector<Problem> covered(std::string_view key, std::initializer_list<std::int64_t> counts) {
  std::vector<Problem> all;
  const schedule::Algorithm& algorithm = find(schedule::algorithms(), "algorithm", key).make;
  for (const Collective collective : algorithm.offers)
    for (const int size : {1, 2, 3, 4, 6})
      for (const int per_host : {1, 2, 3, 6})
        for (const std::int64_t count : counts) {
          Problem problem{.collective = collective, .size = size, .count = count, .root = size - 1, .per_host = per_host};
          if (collective == Collective::all_to_all) problem.count = count / size * size;
          if (collective == Collective::barrier) problem.count = 0;
          if (algorithm.lowering.covers(problem)) all.push_back(problem);
        }
  EXPECT_FALSE(all.empty()) << key;
  return all;
}

// Slots (up to 512 bytes, 128 of these numbers), shared memory, and private memory, which is shown window by window.
TEST(Lowering, IsItsSchedule) {
  for (const std::string_view key : lowered())
    for (const Problem& problem : covered(key, {0, 1, 7, 100, 128, 129, 1013}))
      for (const bool hidden : {false, true})
        for (const ReduceOp op : kReduceOps) expect_same(key, problem, {DType::f32, op}, hidden);
}

TEST(Lowering, IsItsScheduleInEveryType) {
  for (const std::string_view key : lowered())
    for (const DType dtype : kDTypes)
      for (const ReduceOp op : kReduceOps)
        for (const bool hidden : {false, true})
          for (const int per_host : {4, 2}) {
            Problem problem{.size = 4, .count = 777, .per_host = per_host};
            if (find(schedule::algorithms(), "algorithm", key).make.lowering.covers(problem))
              expect_same(key, problem, {dtype, op}, hidden);
          }
}

// More than a window, and more than one chunk: owners and blocks are parts of a chunk then, not of the buffer.
TEST(Lowering, IsItsScheduleForLongBuffers) {
  constexpr std::int64_t kCount = 3 * (2 << 20) / 4 + 11;
  for (const bool hidden : {false, true}) {
    expect_same("direct", {.size = 3, .count = kCount / 4, .per_host = 3}, {DType::f32, ReduceOp::sum}, hidden);
    const Problem problem{.size = 4, .count = kCount, .per_host = 2};
    ASSERT_EQ(schedule::algorithm_for("hierarchical", Collective::allreduce).make.chunks(problem, kCount * 4), 3);
    expect_same("hierarchical", problem, {DType::f32, ReduceOp::mean}, hidden);
  }
}

// That the numbers would tell: in another order of ranks the sums have other bits.
TEST(Lowering, TheNumbersTellOrdersApart) {
  const Problem problem{.size = 4, .count = 1000, .per_host = 4};
  const Kind kind{DType::f32, ReduceOp::sum};
  const std::vector<Bytes> inputs = inputs_of(problem, kind.dtype, 17);
  const auto ring = by_steps(schedule::algorithm_for("ring", Collective::allreduce).make, problem, kind, inputs);
  const auto direct = by_steps(schedule::algorithm_for("direct", Collective::allreduce).make, problem, kind, inputs);
  int differ = 0;
  for (std::size_t i = 0; i < 1000; ++i) differ += std::memcmp(ring[0].data() + 4 * i, direct[0].data() + 4 * i, 4) != 0;
  EXPECT_GT(differ, 300);
}

}  // namespace
}  // namespace paceline::comm
