// The hash of a state. If several workers hold it, the hash is passed from one to the next in the order of its tensors: sixty-odd bytes.
// Only a tensor whose parts interleave (columns, channels) is sent itself, to the worker that has the hash. Processes that are no workers
// (other_parts.h) get it from the leader and send it back.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "paceline/base/checksum.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/holdings.h"
#include "paceline/train/other_parts.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

using Extents = std::vector<std::int64_t>;

/// The offset of a part in the tensor, in elements, if its elements are contiguous there; nothing otherwise.
std::optional<std::int64_t> begin_in(const Extents& whole, const HeldPart& part) {
  std::int64_t begin = 0, stride = 1;
  bool cut = false;  // a later dimension is not complete
  for (std::size_t dim = whole.size(); dim-- > 0;) {
    if (cut && part.shape[dim] != 1) return std::nullopt;
    cut = cut || part.shape[dim] != whole[dim];
    begin += part.first[dim] * stride, stride *= whole[dim];
  }
  return begin;
}

/// Sorts parts by their offset in the tensor; false if they interleave.
bool sort_in_order(HeldTensor& tensor) {
  const auto begin = [&](const HeldPart& part) { return begin_in(tensor.shape, part); };
  if (!std::ranges::all_of(tensor.parts, [&](const HeldPart& part) { return begin(part).has_value(); })) return false;
  std::ranges::sort(tensor.parts, {}, begin);
  return true;
}

/// In the order of a file, so that the hash of a checkpoint equals that of the state.
void put_in_order(std::vector<HeldTensor>& tensors) {
  std::erase_if(tensors, [](const HeldTensor& tensor) { return tensor.name.find(step::kBookkeeping) != tensor.name.npos; });
  std::ranges::stable_sort(tensors, std::greater{}, &HeldTensor::element);
}

/// Puts a part into a tensor that is being assembled, as bytes: the type of an element does not matter.
void put(at::Tensor& whole, const HeldTensor& tensor, const HeldPart& part, std::span<const std::byte> bytes) {
  Extents all = tensor.shape, shape = part.shape;
  all.push_back(tensor.element), shape.push_back(tensor.element);
  if (!whole.defined()) whole = at::empty(all, at::kByte);
  at::Tensor place = whole;
  for (std::size_t dim = 0; dim < part.shape.size(); ++dim)
    place = place.narrow(static_cast<std::int64_t>(dim), part.first[dim], part.shape[dim]);
  place.copy_(at::from_blob(const_cast<std::byte*>(bytes.data()), shape, at::kByte));
}

void add_values(ContentHash& hash, const at::Tensor& values) {
  const NamedTensor item{"", values};
  hash.update(HostTensors({&item, 1}).views().front().data);
}

/// The hash as it is passed from worker to worker.
class Traveller {
 public:
  /// `comm` null: one worker has everything.
  Traveller(std::span<const NamedTensor> shown, comm::Communicator* comm) : shown_(shown), comm_(comm) {}

  void add(HeldTensor& tensor) {
    if (here()) hash_.update(tensor.name).update(graph::to_string(tensor.shape));
    if (!sort_in_order(tensor)) return add_gathered(tensor);
    for (const HeldPart& part : tensor.parts) {
      hand_over(part.held_by(carrier_) ? carrier_ : part.holders.front());
      if (here()) add_values(hash_, shown_[*part.own].tensor);
    }
  }

  std::string finish() {
    hand_over(0);
    if (comm_) {
      std::memcpy(carried_.data(), &hash_, sizeof hash_);
      comm_->run(comm::broadcast(carried_, {.deadline = comm::kUntilTheEnd}));
      std::memcpy(static_cast<void*>(&hash_), carried_.data(), sizeof hash_);
    }
    return hash_.hex();
  }

 private:
  static_assert(std::is_trivially_copyable_v<ContentHash>);

  int rank() const { return comm_ ? comm_->rank() : 0; }
  bool here() const { return rank() == carrier_; }

  // The worker that computes it may take a while for a large tensor.
  void hand_over(int to) {
    if (to == carrier_) return;
    if (here()) {
      std::memcpy(carried_.data(), &hash_, sizeof hash_);
      comm_->run(comm::send(carried_, to, 0, {.deadline = comm::kUntilTheEnd}));
    } else if (rank() == to) {
      comm_->run(comm::receive(carried_, carrier_, 0, {.deadline = comm::kUntilTheEnd}));
      std::memcpy(static_cast<void*>(&hash_), carried_.data(), sizeof hash_);
    }
    carrier_ = to;
  }

  /// Only one tensor at a time is complete on the worker that has the hash.
  void add_gathered(const HeldTensor& tensor) {
    at::Tensor whole;
    for (const HeldPart& part : tensor.parts) {
      const bool mine = part.held_by(carrier_);
      if (!here() && (mine || rank() != part.holders.front())) continue;
      std::vector<std::byte> bytes(static_cast<std::size_t>(part.bytes));
      if (!here() || mine) {
        const HostTensors host(std::span(&shown_[*part.own], 1));
        std::memcpy(bytes.data(), host.views().front().data.data(), bytes.size());
      }
      if (!here()) comm_->run(comm::send(bytes, carrier_, 0, {.deadline = comm::kUntilTheEnd}));
      if (!here()) continue;
      if (!mine) comm_->run(comm::receive(bytes, part.holders.front(), 0, {.deadline = comm::kUntilTheEnd}));
      put(whole, tensor, part, bytes);
    }
    if (here()) add_values(hash_, whole);
  }

  std::span<const NamedTensor> shown_;
  comm::Communicator* comm_;
  ContentHash hash_;
  int carrier_ = 0;  // the worker that has the hash so far
  std::vector<std::byte> carried_ = std::vector<std::byte>(sizeof(ContentHash));
};

/// The hash as the leader sends it to other processes, together with everything that the receiver is to add before another process
/// continues.
class Chain {
 public:
  Chain(std::span<const NamedTensor> shown, const OtherParts& others) : shown_(shown), others_(others) {}

  void add(HeldTensor& tensor) {
    items_.push_back({tensor.name}), items_.push_back({graph::to_string(tensor.shape)});
    if (!sort_in_order(tensor)) return add_assembled(tensor);
    for (const HeldPart& part : tensor.parts) {
      go_to(part.holders.front());
      items_.push_back({"", part.of_first});
    }
  }

  std::string finish() { return go_to(0), continue_hash(), hash_.hex(); }

 private:
  void go_to(int process) {
    if (process != carrier_) continue_hash();
    carrier_ = process;
  }

  void continue_hash() {
    if (carrier_ > 0 && !items_.empty()) hash_ = others_.hash(static_cast<std::size_t>(carrier_), hash_, items_);
    for (const HashItem& item : items_)
      if (carrier_ > 0) break;
      else if (item.tensor) add_values(hash_, shown_[*item.tensor].tensor);
      else hash_.update(item.text);
    items_.clear();
  }

  /// A tensor whose parts are on different servers.
  void add_assembled(const HeldTensor& tensor) {
    go_to(0), continue_hash();
    at::Tensor whole;
    for (const HeldPart& part : tensor.parts) {
      const int holder = part.holders.front();
      if (holder > 0) {
        const std::string bytes = others_.read(static_cast<std::size_t>(holder), part.of_first);
        put(whole, tensor, part, std::as_bytes(std::span(bytes)));
      } else {
        put(whole, tensor, part, HostTensors(std::span(&shown_[*part.own], 1)).views().front().data);
      }
    }
    add_values(hash_, whole);
  }

  std::span<const NamedTensor> shown_;
  const OtherParts& others_;
  ContentHash hash_;
  int carrier_ = 0;  // who continues it with these:
  std::vector<HashItem> items_;
};

std::string hash_of(std::vector<HeldTensor> tensors, std::span<const NamedTensor> shown, comm::Communicator* comm) {
  put_in_order(tensors);
  Traveller traveller(shown, comm);
  for (HeldTensor& tensor : tensors) traveller.add(tensor);
  return traveller.finish();
}

}  // namespace

std::string state_hash(std::span<const NamedTensor> tensors) { return hash_of(holdings_of(tensors), tensors, nullptr); }

std::string state_hash(std::span<const NamedTensor> tensors, const OtherParts& others, std::string_view beginning) {
  std::vector<HeldTensor> holdings = holdings_of(tensors, others.reports());
  std::erase_if(holdings, [&](const HeldTensor& tensor) { return !tensor.name.starts_with(beginning); });
  put_in_order(holdings);
  Chain chain(tensors, others);
  for (HeldTensor& tensor : holdings) chain.add(tensor);
  return chain.finish();
}

std::string state_hash(std::span<const NamedTensor> tensors, comm::Communicator& comm) {
  if (comm.size() == 1) return state_hash(tensors);
  return hash_of(gather_holdings(tensors, comm), tensors, &comm);
}

}  // namespace paceline::train
