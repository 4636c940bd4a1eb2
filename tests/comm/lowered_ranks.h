// The ranks of a lowering's test: as in a real group, but in one thread. No activity ever blocks, so all ranks advance in turn. Messages go
// through queues, and what ranks of a host read and write of each other's memory through a Mover; both count.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "paceline/comm/lowering.h"
#include "paceline/comm/reduce.h"

namespace paceline::comm {

struct Kind {
  DType dtype;
  ReduceOp op;
};

using Bytes = std::vector<std::byte>;

/// Messages from one rank to another of another host: their lengths.
using Lengths = std::map<std::pair<int, int>, std::multiset<std::int64_t>>;
/// Bytes that go from one rank to another of its host. No zeros.
using Moved = std::map<std::pair<int, int>, std::int64_t>;

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

/// Counts what goes from memory of one rank to memory of another. A sum is made by the rank whose turn it is: what it reads of others comes
/// to it, and what it writes to others goes from it.
class CountingMover final : public shared::Mover {
 public:
  void belongs(int rank, const void* memory, std::int64_t bytes) {
    const auto* first = static_cast<const std::byte*>(memory);
    if (bytes > 0) places_[first + bytes] = {first, rank};
  }
  void copy(void* to, const void* from, std::int64_t bytes, const Buffer& buffer) const override {
    count(owner(from), owner(to), bytes);
    Mover::copy(to, from, bytes, buffer);
  }
  void combine(const Operation& op, std::span<const void* const> ins, std::span<void* const> outs, std::int64_t elements,
               int divisor) const override {
    const std::int64_t bytes = elements * size_of(op.buffer.dtype);
    for (const void* in : ins) count(owner(in), turn, bytes);
    for (const void* out : outs) count(turn, owner(out), bytes);
    Mover::combine(op, ins, outs, elements, divisor);
  }

  int turn = 0;
  mutable Moved moved;

 private:
  int owner(const void* at) const {
    const auto found = places_.upper_bound(static_cast<const std::byte*>(at));
    const bool known = found != places_.end() && found->second.first <= at;
    EXPECT_TRUE(known) << "memory of nobody";
    return known ? found->second.second : -1;
  }
  void count(int from, int to, std::int64_t bytes) const {
    if (from != to) moved[{from, to}] += bytes;
  }

  std::map<const std::byte*, std::pair<const void*, int>> places_;  // by their ends: first byte, rank
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
  Moved inside;
};

inline Operation operation_of(const schedule::Problem& problem, const Kind& kind, Bytes& buffer, Bytes& input) {
  Operation op;
  op.kind = static_cast<Operation::Kind>(problem.collective);
  op.op = kind.op, op.root = problem.root;
  op.buffer = Buffer(buffer.data(), problem.count, kind.dtype);
  if (problem.collective == schedule::Collective::all_to_all) op.input = Buffer(input.data(), problem.count, kind.dtype);
  return op;
}

inline Ran by_lowering(const LoweredPath& path, schedule::Problem problem, const Kind& kind, std::vector<Bytes> inputs, bool hidden) {
  const int per_host = std::min(problem.per_host, problem.size), hosts = problem.size / per_host;
  std::vector<Bytes> buffers =
      problem.collective == schedule::Collective::all_to_all ? std::vector<Bytes>(inputs.size(), Bytes(inputs.front().size())) : inputs;
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
  const auto mover = std::make_shared<CountingMover>();
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) {
    const auto at = static_cast<std::size_t>(problem.rank);
    const int seat = problem.rank % per_host;
    groups.push_back(std::make_unique<shared::Group>(seat, seats, 1, memory, block_of(problem.rank / per_host), mover));
    const shared::Block& block = groups.back()->block();
    mover->belongs(problem.rank, block.slot(seat, 0), 2 * shared::kSmall),
        mover->belongs(problem.rank, block.window(seat), shared::kWindow);
    for (const Bytes* own : {&buffers[at], &inputs[at]}) mover->belongs(problem.rank, own->data(), std::ssize(*own));
    transports.push_back(std::make_unique<QueueTransport>(queues, problem.rank));
    const Operation op = operation_of(problem, kind, buffers[at], inputs[at]);
    ranks.push_back(path.make({*transports[at], scratches[at], *groups[at], op, problem, 1, 0}));
  }
  std::vector<bool> done(ranks.size());
  for (int turn = 0; !std::ranges::all_of(done, std::identity()); ++turn) {
    EXPECT_LT(turn, 1'000'000) << "nobody can go on";
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!done[i]) mover->turn = static_cast<int>(i), done[i] = ranks[i]->advance();
  }
  return {std::move(buffers), std::move(queues.lengths), std::move(mover->moved)};
}

}  // namespace paceline::comm
