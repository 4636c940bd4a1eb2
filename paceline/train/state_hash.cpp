// The hash of a state. Where several workers hold it, the hash goes from one to the next in the order of its tensors: sixty-odd bytes
// travel, and no tensor does.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "paceline/base/checksum.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

/// A tensor, or all that this worker holds of it.
struct Hashed {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t element = 0;               // bytes
  bool whole = true;                      // alike on all workers
  std::vector<const NamedTensor*> parts;  // ascending
};

/// In the order of a file, so that the hash of a checkpoint is that of the state.
std::vector<Hashed> in_order(std::span<const NamedTensor> tensors) {
  std::vector<Hashed> order;
  for (const NamedTensor& item : tensors) {
    if (item.name.find(step::kBookkeeping) != item.name.npos) continue;
    if (order.empty() || order.back().name != item.name)
      order.push_back({item.name, item.shape(), item.tensor.element_size(), !item.rows, {}});
    order.back().parts.push_back(&item);
  }
  std::ranges::stable_sort(order, std::greater{}, &Hashed::element);
  return order;
}

void add_values(ContentHash& hash, const NamedTensor& item) {
  const HostTensors host({&item, 1});
  hash.update(host.views().front().data);
}

void add_header(ContentHash& hash, const Hashed& tensor) { hash.update(tensor.name).update(graph::to_string(tensor.shape)); }

/// What a worker holds of a tensor: rows [first, last), as its part `part`.
struct Holding {
  std::int64_t tensor = 0, part = 0, first = 0, last = 0, rank = 0;
};
constexpr std::size_t kNumbers = sizeof(Holding) / sizeof(std::int64_t);

/// Of all workers, in the order in which they are hashed.
std::vector<Holding> gather_holdings(const std::vector<Hashed>& tensors, comm::Communicator& comm) {
  std::vector<Holding> mine;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::size_t part = 0; !tensors[i].whole && part < tensors[i].parts.size(); ++part) {
      const NamedTensor& item = *tensors[i].parts[part];
      if (item.tensor.size(0) > 0)
        mine.push_back(
            {static_cast<std::int64_t>(i), static_cast<std::int64_t>(part), item.first(), item.first() + item.tensor.size(0), comm.rank()});
    }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()));
  counts[static_cast<std::size_t>(comm.rank())] = std::ssize(mine);
  comm.run(comm::all_gather(counts));
  const auto room = static_cast<std::size_t>(std::ranges::max(counts));
  std::vector<std::int64_t> numbers(room * kNumbers * counts.size());
  if (room == 0) return {};
  std::memcpy(numbers.data() + static_cast<std::size_t>(comm.rank()) * room * kNumbers, mine.data(), mine.size() * sizeof(Holding));
  comm.run(comm::all_gather(numbers));
  std::vector<Holding> all;
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    for (std::int64_t i = 0; i < counts[rank]; ++i) {
      const std::int64_t* row = &numbers[(rank * room + static_cast<std::size_t>(i)) * kNumbers];
      all.push_back({row[0], row[1], row[2], row[3], row[4]});
    }
  std::ranges::sort(all, {}, [](const Holding& holding) { return std::pair(holding.tensor, holding.first); });
  return all;
}

}  // namespace

std::string state_hash(std::span<const NamedTensor> tensors) {
  ContentHash hash;
  for (const Hashed& tensor : in_order(tensors)) {
    add_header(hash, tensor);
    for (const NamedTensor* part : tensor.parts) add_values(hash, *part);
  }
  return hash.hex();
}

std::string state_hash(std::span<const NamedTensor> tensors, comm::Communicator& comm) {
  if (comm.size() == 1) return state_hash(tensors);
  static_assert(std::is_trivially_copyable_v<ContentHash>);
  const std::vector<Hashed> order = in_order(tensors);
  const std::vector<Holding> holdings = gather_holdings(order, comm);
  ContentHash hash;
  int carrier = 0;  // the worker that has the hash of all before
  std::vector<std::byte> carried(sizeof(ContentHash));
  // Whoever computes it may take its time over a large tensor.
  const auto hand_over = [&](int to) {
    if (to == carrier) return;
    if (comm.rank() == carrier) {
      std::memcpy(carried.data(), &hash, sizeof hash);
      comm.run(comm::send(carried, to, 0, {.deadline = comm::kUntilTheEnd}));
    } else if (comm.rank() == to) {
      comm.run(comm::receive(carried, carrier, 0, {.deadline = comm::kUntilTheEnd}));
      std::memcpy(static_cast<void*>(&hash), carried.data(), sizeof hash);
    }
    carrier = to;
  };
  auto next = holdings.begin();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (comm.rank() == carrier) add_header(hash, order[i]);
    if (order[i].whole && comm.rank() == carrier) add_values(hash, *order[i].parts.front());
    for (; next != holdings.end() && next->tensor == static_cast<std::int64_t>(i); ++next) {
      hand_over(static_cast<int>(next->rank));
      if (comm.rank() == carrier) add_values(hash, *order[i].parts[static_cast<std::size_t>(next->part)]);
    }
  }
  hand_over(0);
  std::memcpy(carried.data(), &hash, sizeof hash);
  comm.run(comm::broadcast(carried, {.deadline = comm::kUntilTheEnd}));
  std::memcpy(static_cast<void*>(&hash), carried.data(), sizeof hash);
  return hash.hex();
}

}  // namespace paceline::train
