#include "paceline/data_parallel/buckets.h"

#include <algorithm>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/schedule/bucket_cut.h"

namespace paceline::data_parallel {

namespace {

std::vector<schedule::BucketEntry> entries_of(const tensor::Arena& arena) {
  std::vector<schedule::BucketEntry> entries;
  for (std::size_t i = 0; i < arena.entries().size(); ++i) {
    const tensor::Entry& entry = arena.entries()[i];
    entries.push_back({arena.range_of(i, i + 1).count(), entry.unit, entry.is_private()});
  }
  return entries;
}

std::vector<Bucket> in_arena(const tensor::Arena& arena, const std::vector<schedule::BucketCut>& cuts) {
  std::vector<Bucket> buckets;
  for (const schedule::BucketCut& cut : cuts) {
    const std::int64_t begin = arena.entries()[cut.first].offset;
    buckets.push_back({buckets.size(), begin, begin + cut.elements, cut.first, cut.last});
  }
  return buckets;
}

}  // namespace

std::vector<Bucket> cut_buckets(const tensor::Arena& arena, std::int64_t bytes) {
  const auto size = static_cast<std::int64_t>(arena.gradients().element_size());
  return in_arena(arena, schedule::cut_by_size(entries_of(arena), bytes > 0 ? std::max<std::int64_t>(bytes / size, 1) : 0));
}

std::vector<Bucket> unit_buckets(const tensor::Arena& arena) { return in_arena(arena, schedule::cut_by_unit(entries_of(arena))); }

std::vector<std::size_t> leaving_order(const std::vector<Bucket>& buckets, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> turn(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) turn[order[i]] = i;
  const auto leaves = [&](std::size_t index) {
    const Bucket& bucket = buckets[index];
    return *std::max_element(turn.begin() + static_cast<std::ptrdiff_t>(bucket.first_entry),
                             turn.begin() + static_cast<std::ptrdiff_t>(bucket.last_entry));
  };
  std::vector<std::size_t> result(buckets.size());
  std::iota(result.begin(), result.end(), 0);
  std::ranges::sort(result, {}, leaves);  // buckets have distinct last entries
  return result;
}

BucketLane::BucketLane(const tensor::Arena& arena, comm::Communicator& comm, const Clock& clock, Treat treat, Begin begin)
    : arena_(arena),
      comm_(comm),
      clock_(clock),
      treat_(std::move(treat)),
      begin_(std::move(begin)),
      order_(arena.entries().size()),
      on_stream_(arena.gradients().device()) {
  std::iota(order_.rbegin(), order_.rend(), 0);  // until the real order is learned: last layers first
  configure(0, false);
}

void BucketLane::configure(std::vector<Bucket> buckets, Leave leave) {
  leave_ = leave;
  buckets_ = std::move(buckets);
  turns_ = leaving_order(buckets_, order_);
  bucket_of_.assign(arena_.entries().size(), kNone);
  for (const Bucket& bucket : buckets_)
    std::fill(bucket_of_.begin() + static_cast<std::ptrdiff_t>(bucket.first_entry),
              bucket_of_.begin() + static_cast<std::ptrdiff_t>(bucket.last_entry), bucket.index);
  begin_pass();
}

void BucketLane::begin_pass() {
  missing_.resize(buckets_.size());
  for (const Bucket& bucket : buckets_) missing_[bucket.index] = bucket.last_entry - bucket.first_entry;
  complete_.assign(arena_.entries().size(), false);
  next_ = treated_ = 0;
}

void BucketLane::ready(std::size_t first, std::size_t last) {
  for (std::size_t entry = first; entry < last; ++entry) {
    if (complete_[entry])
      continue;  // a parameter that the module uses twice is announced twice; its gradient is complete at the first announcement
    complete_[entry] = true;
    if (bucket_of_[entry] != kNone) --missing_[bucket_of_[entry]];
    if (!learned_) seen_.push_back(entry);
  }
  if (leave_ == Leave::beside_pass) launch();
  if (leave_ == Leave::in_pass) expose([this] { launch(); });
}

void BucketLane::launch() {
  const std::size_t before = next_;
  while (next_ < turns_.size() && missing_[turns_[next_]] == 0) ++next_;
  if (next_ == before) return;
  if (leave_ == Leave::in_pass) {
    for (std::size_t i = before; begin_ && i < next_; ++i) begin_(buckets_[turns_[i]]);
    return treat_begun(/*but=*/begin_ ? 1 : 0);
  }
  for (std::size_t i = before; i < next_; ++i) lane_.start([this, index = turns_[i]] { treat(buckets_[index]); });
}

void BucketLane::treat_begun(std::size_t but) {
  while (next_ - treated_ > but) treat(buckets_[turns_[treated_++]]);
}

template <class Wait>
void BucketLane::expose(Wait wait) {
  const Nanoseconds began = clock_.now(), computed = computed_;
  wait();
  const Nanoseconds waited = clock_.now() - began, computing = computed_.load() - computed;
  exposed_ += std::max(waited - computing, Nanoseconds(0));  // overestimates if an update was in progress when the wait began
}

void BucketLane::finish() {
  expose([this] {
    if (leave_ == Leave::after_pass) {
      for (std::size_t index : turns_) treat(buckets_[index]);
      return;
    }
    std::fill(missing_.begin(), missing_.end(), 0);
    launch();
    if (overlaps()) lane_.wait();
    else treat_begun(/*but=*/0);
  });
  if (!learned_) learn();
  begin_pass();
}

// All workers use worker 0's order: if a module branches on the data, workers may see different orders.
void BucketLane::learn() {
  std::vector<bool> known(order_.size(), false);
  for (std::size_t entry : seen_) known[entry] = true;
  for (std::size_t entry : order_)
    if (!known[entry]) seen_.push_back(entry);  // unused in this pass: put last
  std::vector<std::int64_t> agreed(seen_.begin(), seen_.end());
  comm_.run(comm::broadcast(agreed));
  order_.assign(agreed.begin(), agreed.end());
  turns_ = leaving_order(buckets_, order_);
  seen_.clear();
  learned_ = true;
}

void BucketLane::treat(const Bucket& bucket) {
  const Nanoseconds began = clock_.now();
  on_stream_.begin();
  const Nanoseconds computed = treat_(bucket);
  on_stream_.end();
  busy_ += clock_.now() - began - computed;
  computed_ = computed_.load() + computed;  // only one thread at a time handles buckets
}

}  // namespace paceline::data_parallel
