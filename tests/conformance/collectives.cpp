#include "collectives.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/half.h"
#include "paceline/comm/mesh.h"

namespace paceline::comm {
namespace {

using schedule::Collective;
using schedule::Range;

/// Small whole numbers, so that sums are exact in every type and in every order.
int element(int rank, std::int64_t index) { return static_cast<int>((rank * 7 + index * 3 + index / 5) % 5); }

void store(DType dtype, std::byte* base, std::int64_t index, double value) {
  std::byte* at = base + index * size_of(dtype);
  const auto put = [&](auto number) { std::memcpy(at, &number, sizeof(number)); };
  switch (dtype) {
    case DType::f32: return put(static_cast<float>(value));
    case DType::f64: return put(value);
    case DType::f16: return put(Float16::from(static_cast<float>(value)));
    case DType::bf16: return put(BFloat16::from(static_cast<float>(value)));
    case DType::i8: return put(static_cast<std::int8_t>(value));
    case DType::u8: return put(static_cast<std::uint8_t>(value));
    case DType::i32: return put(static_cast<std::int32_t>(value));
    case DType::i64: return put(static_cast<std::int64_t>(value));
  }
}

double reduced(const Case& tried, int size, std::int64_t index) {
  double result = element(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const double other = element(rank, index);
    if (tried.op == ReduceOp::min) {
      result = std::min(result, other);
    } else if (tried.op == ReduceOp::max) {
      result = std::max(result, other);
    } else {
      result += other;
    }
  }
  if (tried.op != ReduceOp::mean) return result;
  const bool narrow = tried.dtype == DType::f32 || tried.dtype == DType::f16 || tried.dtype == DType::bf16;
  return narrow ? static_cast<double>(static_cast<float>(result) / static_cast<float>(size)) : result / size;
}

int owner_of(std::int64_t count, int size, std::int64_t index) {
  int owner = 0;
  while (schedule::part(count, size, owner).end <= index) ++owner;
  return owner;
}

struct Expected {
  Range range;  // what the collective promises on this rank
  double (*value)(const Case&, int rank, int size, std::int64_t index);
};

Expected expected(const Case& tried, int rank, int size) {
  const Range all{0, tried.count}, own = schedule::part(tried.count, size, rank), none{0, 0};
  const auto reduction = [](const Case& c, int, int p, std::int64_t i) { return reduced(c, p, i); };
  switch (tried.collective) {
    case Collective::allreduce: return {all, reduction};
    case Collective::reduce: return {rank == tried.root ? all : none, reduction};
    case Collective::reduce_scatter: return {own, reduction};
    case Collective::broadcast: return {all, [](const Case& c, int, int, std::int64_t i) { return double(element(c.root, i)); }};
    case Collective::all_gather:
      return {all, [](const Case& c, int, int p, std::int64_t i) { return double(element(owner_of(c.count, p, i), i)); }};
    case Collective::all_to_all:
      return {all, [](const Case& c, int r, int p, std::int64_t i) {
                const std::int64_t part = c.count / p;
                return double(element(static_cast<int>(i / part), r * part + i % part));
              }};
    case Collective::barrier: return {none, reduction};
  }
  return {};
}

Operation operation_for(const Case& tried, const Buffer& buffer, const Buffer& input) {
  const Options options{.op = tried.op, .root = tried.root, .algorithm = tried.algorithm, .deadline = {}};
  switch (tried.collective) {
    case Collective::allreduce: return allreduce(buffer, options);
    case Collective::reduce_scatter: return reduce_scatter(buffer, options);
    case Collective::all_gather: return all_gather(buffer, options);
    case Collective::broadcast: return broadcast(buffer, options);
    case Collective::reduce: return reduce(buffer, options);
    case Collective::all_to_all: return all_to_all(input, buffer, options);
    case Collective::barrier: return barrier(options);
  }
  return {};
}

}  // namespace

std::string describe(const Case& tried) {
  return fmt::format("{} by {} of {} {} ({}, root {}, {} memory{})", schedule::name_of(tried.collective), tried.algorithm, tried.count,
                     name_of(tried.dtype), name_of(tried.op), tried.root, tried.shared_memory ? "shared" : "private",
                     tried.asynchronous ? ", asynchronous" : "");
}

std::vector<Case> all_cases(int size, const Topology& topology, std::span<const DType> types) {
  std::vector<Case> cases;
  for (const Collective collective : schedule::kCollectives) {
    std::vector<std::string> algorithms{"auto"};
    for (const auto& row : schedule::algorithms())
      if (row.make.offer(collective)) algorithms.emplace_back(row.key);
    for (const std::string& algorithm : algorithms) {
      Case tried{.collective = collective, .algorithm = algorithm};
      const auto add = [&](std::int64_t count, std::initializer_list<bool> memories = {false, true}) {
        tried.count = collective == Collective::all_to_all ? count / size * size : count;
        for (const bool shared_memory : memories) {
          tried.shared_memory = shared_memory;
          tried.asynchronous = !tried.asynchronous;
          tried.root = static_cast<int>(cases.size() % static_cast<std::size_t>(size));
          cases.push_back(tried);
        }
      };
      if (collective == Collective::barrier) {
        add(0);
        continue;
      }
      for (const std::int64_t count : {0, 1, size - 1, 1000, 30000}) add(count);
      const bool reduces =
          collective == Collective::allreduce || collective == Collective::reduce_scatter || collective == Collective::reduce;
      // Hosts decide who talks to whom, not what becomes of numbers: among several, each type has one operation, in turn. Every pair of
      // type and operation has one kind of memory, in turn as well: which memory it is was tried with the counts above.
      std::size_t turn = 0;
      for (const DType dtype : types) {
        tried.dtype = dtype;
        for (const ReduceOp op : kReduceOps) {
          if ((!reduces || topology.hosts > 1) && op != kReduceOps[turn % std::size(kReduceOps)]) continue;
          tried.op = op;
          add(6000, {(turn + static_cast<std::size_t>(op) / 2) % 2 == 0});
        }
        ++turn;
      }
      tried.dtype = DType::f64, tried.op = ReduceOp::sum;
      add(150001);  // more than a window
    }
  }
  return cases;
}

std::string conform(Communicator& communicator, const Case& tried) {
  const int rank = communicator.rank(), size = communicator.size();
  const std::int64_t bytes = tried.count * size_of(tried.dtype);
  std::vector<std::byte> private_memory[2];
  Memory shared_memory[2];
  std::byte* memory[2];
  for (int i = 0; i < 2; ++i) {
    if (tried.shared_memory) {
      shared_memory[i] = communicator.allocate(bytes);
      memory[i] = static_cast<std::byte*>(shared_memory[i].get());
    } else {
      private_memory[i].resize(static_cast<std::size_t>(bytes));
      memory[i] = private_memory[i].data();
    }
  }
  const bool to_all = tried.collective == Collective::all_to_all;
  for (std::int64_t i = 0; i < tried.count; ++i) {
    store(tried.dtype, memory[1], i, element(rank, i));
    store(tried.dtype, memory[0], i, to_all ? 99 : element(rank, i));
  }
  const Operation operation =
      operation_for(tried, Buffer(memory[0], tried.count, tried.dtype), Buffer(memory[1], tried.count, tried.dtype));
  if (tried.asynchronous) {
    communicator.start(operation).wait();
  } else {
    communicator.run(operation);
  }
  const auto [range, value] = expected(tried, rank, size);
  const std::int64_t width = size_of(tried.dtype);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    std::byte right[8];
    store(tried.dtype, right, 0, value(tried, rank, size, i));
    if (std::memcmp(right, memory[0] + i * width, static_cast<std::size_t>(width)) != 0)
      return fmt::format("{}: element {} of rank {} of {} is wrong", describe(tried), i, rank, size);
  }
  return {};
}

std::string conform_messages(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size(), next = (rank + 1) % size, last = (rank + size - 1) % size;
  if (size == 1) return {};
  // A ring of large messages, all sent before anything is received, with tags in the reverse order.
  constexpr int kMessages = 6;
  constexpr std::int64_t kElements = 70001;
  std::vector<std::vector<std::int32_t>> out, in(kMessages, std::vector<std::int32_t>(kElements));
  std::vector<Work> works;
  for (int tag = 0; tag < kMessages; ++tag) {
    out.emplace_back(kElements, rank * 100 + tag);
    out.back().back() = tag;
  }
  for (int tag = 0; tag < kMessages; ++tag) works.push_back(communicator.start(send(out[static_cast<std::size_t>(tag)], next, tag)));
  for (int tag = kMessages - 1; tag >= 0; --tag) works.push_back(communicator.start(receive(in[static_cast<std::size_t>(tag)], last, tag)));
  for (const Work& work : works) work.wait();
  for (int tag = 0; tag < kMessages; ++tag) {
    const auto& got = in[static_cast<std::size_t>(tag)];
    if (got.front() != last * 100 + tag || got[kElements / 2] != last * 100 + tag || got.back() != tag)
      return fmt::format("rank {}: the message with tag {} from rank {} is wrong: {}", rank, tag, last, got.front());
  }
  // Messages of one tag keep their order, short ones too, while a collective goes on.
  constexpr int kShort = 40;
  std::vector<std::int64_t> sent(kShort), received(kShort), together(1, 1);
  works.clear();
  for (int i = 0; i < kShort; ++i) {
    sent[static_cast<std::size_t>(i)] = rank * 1000 + i;
    works.push_back(communicator.start(receive(Buffer(&received[static_cast<std::size_t>(i)], 1), last, 7)));
    works.push_back(communicator.start(send(Buffer(&sent[static_cast<std::size_t>(i)], 1), next, 7)));
  }
  communicator.run(allreduce(together));
  for (const Work& work : works) work.wait();
  if (together[0] != size) return fmt::format("rank {}: an allreduce among messages gave {}", rank, together[0]);
  for (int i = 0; i < kShort; ++i)
    if (received[static_cast<std::size_t>(i)] != last * 1000 + i)
      return fmt::format("rank {}: message {} of tag 7 came out of order", rank, i);
  return {};
}

std::string conform_early_messages(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size(), next = (rank + 1) % size, last = (rank + size - 1) % size;
  if (size == 1) return {};
  constexpr int kMessages = 8, kTags = 4;
  for (const std::int64_t elements : {0, 10, 100'000})
    for (const bool shared_memory : {false, true}) {
      std::vector<std::vector<std::int32_t>> out(kMessages);
      std::vector<Memory> memories;
      std::vector<Work> works;
      for (int i = 0; i < kMessages; ++i) {
        auto& values = out[static_cast<std::size_t>(i)];
        values.assign(static_cast<std::size_t>(elements), rank * 100 + i);
        Buffer buffer(values);
        if (shared_memory) {
          buffer.data = memories.emplace_back(communicator.allocate(buffer.bytes())).get();
          std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(buffer.data));
        }
        works.push_back(communicator.start(send(buffer, next, i % kTags)));
      }
      std::vector<std::int32_t> in(static_cast<std::size_t>(elements)), together(1000, 1);
      communicator.run(allreduce(together, {.op = ReduceOp::sum, .root = 0, .algorithm = "ring", .deadline = {}}));
      if (together.front() != size || together.back() != size)
        return fmt::format("rank {}: a ring among messages that nobody received yet gave {}", rank, together.front());
      for (int tag = kTags - 1; tag >= 0; --tag)
        for (int i = tag; i < kMessages; i += kTags) {
          communicator.run(receive(in, last, tag));
          for (const std::int32_t value : in)
            if (value != last * 100 + i) return fmt::format("rank {}: {} came where message {} of tag {} was due", rank, value, i, tag);
        }
      for (const Work& work : works) work.wait();
    }
  return {};
}

std::string conform_split(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  const auto halves = communicator.split(rank % 2, -rank);  // even and odd ranks, backwards
  const int members = rank % 2 == 0 ? (size + 1) / 2 : size / 2;
  if (halves->size() != members || halves->rank() != members - 1 - rank / 2)
    return fmt::format("rank {} is {} of {} after a split", rank, halves->rank(), halves->size());
  std::vector<std::int32_t> sum(5000, rank);
  std::int32_t expected = 0;
  for (int i = rank % 2; i < size; i += 2) expected += i;
  halves->run(allreduce(sum));
  if (sum.front() != expected || sum.back() != expected) return fmt::format("rank {}: the sum of its half is {}", rank, sum.front());
  const auto alone = halves->split(halves->rank(), 0);
  std::vector<std::int32_t> own(3, rank);
  alone->run(allreduce(own));
  halves->run(allreduce(own, {.op = ReduceOp::sum, .root = 0, .algorithm = "ring", .deadline = {}}));
  if (alone->size() != 1 || own[2] != expected) return fmt::format("rank {}: groups within groups disagree", rank);
  return {};
}

std::string conform_overlap(Communicator& communicator) {
  constexpr int kWorks = 12;
  const int rank = communicator.rank(), size = communicator.size();
  std::vector<std::vector<float>> buffers;
  std::vector<Work> works;
  for (int i = 0; i < kWorks; ++i) buffers.emplace_back(1 << (i + 3), static_cast<float>(rank + i));
  for (int i = 0; i < kWorks; ++i) {
    const std::string algorithm = i % 3 == 0 ? "ring" : i % 3 == 1 ? "auto" : "tree";
    works.push_back(communicator.start(
        allreduce(buffers[static_cast<std::size_t>(i)], {.op = ReduceOp::sum, .root = 0, .algorithm = algorithm, .deadline = {}})));
  }
  std::vector<float> last(10, 1);
  communicator.run(allreduce(last));  // waits its turn behind the others
  for (const Work& work : works)
    if (!work.done()) return fmt::format("rank {}: a later collective overtook an earlier one", rank);
  for (int i = 0; i < kWorks; ++i) {
    works[static_cast<std::size_t>(i)].wait();
    const auto expected = static_cast<float>(size * i + size * (size - 1) / 2);
    for (const float value : buffers[static_cast<std::size_t>(i)])
      if (value != expected) return fmt::format("rank {}: overlapping allreduce {} gave {} for {}", rank, i, value, expected);
  }
  return {};
}

std::string conform_mesh(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  for (int tensor = 1; tensor <= size; ++tensor)
    for (int pipeline = 1; pipeline <= size / tensor; ++pipeline) {
      if (size % (tensor * pipeline) != 0) continue;
      const Mesh mesh(communicator, {.pipeline = pipeline, .tensor = tensor});
      const MeshPlace place = mesh.place_of(rank);
      std::vector<std::int32_t> sums{rank, rank, rank}, expected(3);
      std::int32_t* sum = sums.data();
      for (const Axis axis : kAxes) mesh.axis(axis).run(allreduce(Buffer(sum++, 1)));
      for (int other = 0; other < size; ++other) {
        const MeshPlace theirs = mesh.place_of(other);
        const bool data = theirs.data == place.data, stage = theirs.pipeline == place.pipeline, slice = theirs.tensor == place.tensor;
        expected[0] += stage && slice ? other : 0;
        expected[1] += data && slice ? other : 0;
        expected[2] += data && stage ? other : 0;
      }
      const bool placed = mesh.data().rank() == place.data && mesh.pipeline().rank() == place.pipeline &&
                          mesh.tensor().rank() == place.tensor && mesh.rank_at(place) == rank;
      if (!placed || sums != expected)
        return fmt::format("rank {}: its groups add up to {}, not {}, in {}", rank, fmt::join(sums, " "), fmt::join(expected, " "),
                           mesh.describe());
    }
  return {};
}

std::string conform_all(Communicator& communicator, std::span<const DType> types) {
  for (const Case& tried : all_cases(communicator.size(), communicator.topology(), types))
    if (const std::string wrong = conform(communicator, tried); !wrong.empty()) return wrong;
  for (const auto part : {conform_messages, conform_early_messages, conform_split, conform_overlap, conform_mesh})
    if (const std::string wrong = part(communicator); !wrong.empty()) return wrong;
  return {};
}

}  // namespace paceline::comm
