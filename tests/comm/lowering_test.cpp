// That what runs is what the schedule says: every lowering against the steps of the algorithm that declares it, which a player executes.
//
// The paths run here as in a real group, but in one thread: no activity ever blocks, so all ranks advance in turn. Messages go through
// queues that count them.
#include "paceline/comm/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "paceline/base/half.h"
#include "paceline/base/random.h"
#include "paceline/comm/reduce.h"
#include "tests/schedule/player.h"

namespace paceline::comm {
namespace {

using schedule::Collective;
using schedule::Problem;
using schedule::Range;
using schedule::Step;

// Numbers
// -----------------------------------------------------------------------------------------------------------------------------------

struct Kind {
  DType dtype;
  ReduceOp op;
};

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

using Bytes = std::vector<std::byte>;

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

/// Messages between two ranks of different hosts, by size, and what they carry.
using Lengths = std::map<std::pair<int, int>, std::multiset<std::int64_t>>;

Lengths across_by_steps(const schedule::Algorithm& algorithm, Problem problem, DType dtype) {
  Lengths lengths;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank)
    for (const Step& step : algorithm.steps(problem))
      if ((step.kind == Step::Kind::send || step.kind == Step::Kind::give) &&
          step.peer / problem.per_host != problem.rank / problem.per_host)
        lengths[{problem.rank, step.peer}].insert(step.range.size() * size_of(dtype));
  return lengths;
}

// The path
// ----------------------------------------------------------------------------------------------------------------------------------

/// All memory is one process's. `hidden`: it counts as private, so that it goes through windows.
class OneProcess final : public shared::HostMemory {
 public:
  explicit OneProcess(bool hidden) : hidden_(hidden) {}
  shared::Location locate(const void* data, std::int64_t) const override {
    return {hidden_ ? 0U : 1U, reinterpret_cast<std::uint64_t>(data)};
  }
  std::byte* address(shared::Location location) override { return reinterpret_cast<std::byte*>(location.offset); }  // NOLINT: an address
  Memory allocate(std::int64_t bytes) override { return {std::calloc(1, static_cast<std::size_t>(bytes)), std::free}; }
  shared::Location allocate_block(std::int64_t, int) override { return {}; }
  std::string gone(int) override { return {}; }

 private:
  bool hidden_;
};

class Queues {
 public:
  struct Sent {
    Tag tag;
    Bytes bytes;
  };
  std::map<std::pair<int, int>, std::deque<Sent>> in_flight;
  Lengths lengths;
};

class QueueTransport final : public Transport {
 public:
  QueueTransport(Queues& queues, int rank) : queues_(queues), rank_(rank) {}
  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override {
    const auto* first = static_cast<const std::byte*>(data);
    queues_.in_flight[{rank_, peer}].push_back({tag, {first, first + bytes}});
    queues_.lengths[{rank_, peer}].insert(bytes);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) override {
    return std::make_unique<Arriving>(queues_.in_flight[{peer, rank_}], tag, data, bytes, arrival);
  }

 private:
  struct Done final : Request {
    bool test() override { return true; }
  };
  struct Arriving final : Request {
    Arriving(std::deque<Queues::Sent>& queue, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival)
        : queue_(queue), tag_(tag), data_(data), bytes_(bytes), arrival_(arrival) {}
    bool test() override {
      const auto found = std::ranges::find(queue_, tag_, &Queues::Sent::tag);
      if (found == queue_.end()) return false;
      EXPECT_EQ(static_cast<std::int64_t>(found->bytes.size()), bytes_);
      if (arrival_.reduces) combine(arrival_.dtype, arrival_.op, data_, found->bytes.data(), bytes_ / size_of(arrival_.dtype));
      else std::memcpy(data_, found->bytes.data(), found->bytes.size());
      queue_.erase(found);
      return true;
    }
    std::deque<Queues::Sent>& queue_;
    Tag tag_;
    void* data_;
    std::int64_t bytes_;
    Arrival arrival_;
  };

  Queues& queues_;
  int rank_;
};

struct Ran {
  std::vector<Bytes> results;
  Lengths across;
};

Operation operation_of(const Problem& problem, const Kind& kind, Bytes& buffer, Bytes& input) {
  Operation op;
  op.kind = static_cast<Operation::Kind>(problem.collective);
  op.op = kind.op, op.root = problem.root;
  op.buffer = Buffer(buffer.data(), problem.count, kind.dtype);
  if (problem.collective == Collective::all_to_all) op.input = Buffer(input.data(), problem.count, kind.dtype);
  return op;
}

Ran by_lowering(const LoweredPath& path, Problem problem, const Kind& kind, std::vector<Bytes> inputs, bool hidden) {
  const int per_host = std::min(problem.per_host, problem.size), hosts = problem.size / per_host;
  std::vector<Bytes> buffers =
      problem.collective == Collective::all_to_all ? std::vector<Bytes>(inputs.size(), Bytes(inputs.front().size())) : inputs;
  const auto memory = std::make_shared<OneProcess>(hidden);
  std::vector<Memory> blocks;
  for (int host = 0; host < hosts; ++host) blocks.push_back(memory->allocate(shared::Block::bytes(per_host) + 64));
  const auto block_of = [&](int host) {
    const auto start = reinterpret_cast<std::uintptr_t>(blocks[static_cast<std::size_t>(host)].get());
    return reinterpret_cast<std::byte*>((start + 63) / 64 * 64);  // NOLINT: aligned as a block is
  };
  std::vector<int> seats(static_cast<std::size_t>(per_host));
  for (int i = 0; i < per_host; ++i) seats[static_cast<std::size_t>(i)] = i;
  Queues queues;
  std::vector<std::unique_ptr<shared::Group>> groups;
  std::vector<std::unique_ptr<QueueTransport>> transports;
  std::vector<Operation> operations;
  std::deque<Scratch> scratches(static_cast<std::size_t>(problem.size));
  std::vector<std::unique_ptr<Activity>> ranks;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) {
    const auto at = static_cast<std::size_t>(problem.rank);
    groups.push_back(std::make_unique<shared::Group>(problem.rank % per_host, seats, 1, memory, block_of(problem.rank / per_host)));
    transports.push_back(std::make_unique<QueueTransport>(queues, problem.rank));
    const Operation op = operation_of(problem, kind, buffers[at], inputs[at]);
    ranks.push_back(path.make({*transports[at], scratches[at], *groups[at], op, problem, 1, 0}));
  }
  std::vector<bool> done(ranks.size());
  for (int turn = 0; !std::ranges::all_of(done, std::identity()); ++turn) {
    EXPECT_LT(turn, 1'000'000) << "nobody can go on";
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!done[i]) done[i] = ranks[i]->advance();
  }
  return {std::move(buffers), std::move(queues.lengths)};
}

// Both
// --------------------------------------------------------------------------------------------------------------------------------------

/// The elements of a rank's buffer that the collective defines.
Range promised(const Problem& p, int rank) {
  if (p.collective == Collective::reduce_scatter) return schedule::part(p.count, p.size, rank);
  if (p.collective == Collective::reduce && rank != p.root) return {0, 0};
  return {0, p.count};
}

void expect_same(std::string_view key, Problem problem, const Kind& kind, bool hidden) {
  const schedule::Algorithm& algorithm = schedule::algorithm_for(key, problem.collective).make;
  problem.chunks = algorithm.chunks(problem, problem.count * size_of(kind.dtype));
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

// Slots (up to 512 bytes), shared memory, and private memory, which is shown window by window.
TEST(Lowering, GivesTheBitsOfItsSchedule) {
  for (const std::string_view key : lowered())
    for (const Problem& problem : covered(key, {0, 1, 7, 100, 1013}))
      for (const bool hidden : {false, true})
        for (const ReduceOp op : kReduceOps) expect_same(key, problem, {DType::f32, op}, hidden);
}

TEST(Lowering, GivesTheBitsOfItsScheduleInEveryType) {
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
TEST(Lowering, GivesTheBitsOfItsScheduleForLongBuffers) {
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
