// Buckets: ranges of the arena whose gradients are sent together, in the order in which the backward pass completes them.
//
// A bucket is sent as soon as its last gradient is complete, while the pass continues: a separate thread (the lane) takes one bucket after
// the other and handles it: reduces it, updates its parameters, and so on. Without overlap, the training thread does the same after the
// pass, or between layers if memory must be freed early. In the latter case a bucket can be begun when it is full and finished when the
// next one is full, so that workers that reach it at different times need not wait for each other.
//
// Invariant: all workers handle the buckets in the same order, whenever each becomes ready. The order is learned in worker 0's first pass
// and broadcast to all.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/comm/communicator.h"
#include "paceline/data_parallel/lane.h"
#include "paceline/tensor/arena.h"
#include "paceline/tensor/stream_timer.h"

namespace paceline::data_parallel {

struct Bucket {
  std::size_t index = 0;                        // counted from the end of the arena, whatever the order of sending
  std::int64_t begin = 0, end = 0;              // elements of the arena
  std::size_t first_entry = 0, last_entry = 0;  // its entries [first, last)

  std::int64_t count() const { return end - begin; }
};

/// Divides the arena into buckets of about `bytes` each, made of whole entries, starting at its end; private entries are in none. bytes ≤
/// 0: as few buckets as possible.
std::vector<Bucket> cut_buckets(const tensor::Arena& arena, std::int64_t bytes);

/// One bucket per unit that has parameters, starting with the last; several if private entries lie between them.
std::vector<Bucket> unit_buckets(const tensor::Arena& arena);

/// The order in which buckets are sent: by the position in `order` (entries, first to complete first) of their last entry to complete.
std::vector<std::size_t> leaving_order(const std::vector<Bucket>& buckets, const std::vector<std::size_t>& order);

/// When a bucket is handled: after the pass; as soon as it is full, in the pass's thread; or as soon as it is full, in a separate thread.
enum class Leave { after_pass, in_pass, beside_pass };

class BucketLane {
 public:
  /// Blocks until the bucket is done, and returns how much of that time was not communication.
  using Treat = std::function<Nanoseconds(const Bucket&)>;
  /// Starts handling a bucket without blocking.
  using Begin = std::function<void(const Bucket&)>;

  /// `begin` starts buckets during the pass; null: they are handled when they are full.
  BucketLane(const tensor::Arena& arena, comm::Communicator& comm, const Clock& clock, Treat treat, Begin begin = nullptr);

  /// Called between passes, with the same argument on all workers.
  void configure(std::vector<Bucket> buckets, Leave leave);
  void configure(std::int64_t bytes, bool overlap) {
    configure(cut_buckets(arena_, bytes), overlap ? Leave::beside_pass : Leave::after_pass);
  }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  bool overlaps() const { return leave_ == Leave::beside_pass; }

  /// The gradients of entries [first, last) are complete.
  void ready(std::size_t first, std::size_t last);
  /// The pass is over: entries that were not announced are sent as they are. Returns when all buckets are done, and throws if one failed.
  void finish();

  /// How long the training thread, or on a GPU its stream, waited for communication.
  double exposed_s() const { return on_stream_.measures() ? on_stream_.seconds() : seconds(exposed_); }
  /// How long buckets were in flight.
  double busy_s() const { return on_stream_.measures() ? on_stream_.seconds() : seconds(busy_); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void begin_pass();
  void learn();
  void launch();  // starts all buckets whose turn has come
  void treat(const Bucket& bucket);
  void treat_begun(std::size_t but);  // finishes all but this many
  template <class Wait>
  void expose(Wait wait);

  const tensor::Arena& arena_;
  comm::Communicator& comm_;
  const Clock& clock_;
  Treat treat_;
  Begin begin_;
  Leave leave_ = Leave::after_pass;
  std::vector<std::size_t> order_;  // of entries; learned
  std::vector<std::size_t> seen_;   // the order of the first pass, while it is being learned
  bool learned_ = false;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> turns_;      // buckets in the order of sending
  std::vector<std::size_t> bucket_of_;  // by entry; kNone for private ones
  std::vector<std::size_t> missing_;    // by bucket: entries that are not complete yet
  std::vector<bool> complete_;          // by entry
  std::size_t next_ = 0;                // next turn
  std::size_t treated_ = 0;             // turns finished during the pass; those up to next_ are begun

  Nanoseconds exposed_{0}, busy_{0};
  tensor::StreamTimer on_stream_;
  std::atomic<Nanoseconds> computed_{Nanoseconds(0)};  // the part of the handling that was not communication
  Lane lane_;                                          // last: its thread uses everything above
};

}  // namespace paceline::data_parallel
