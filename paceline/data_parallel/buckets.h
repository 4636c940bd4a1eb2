// Buckets: ranges of the arena whose gradients travel together, in the order in which the backward pass completes them.
//
// A bucket leaves the moment its last gradient is there, while the pass continues: a thread of its own (the lane) takes one bucket after
// the other and does with it what it was told to do: reduce it, update its parameters. Without overlap the same is done in the training
// thread, after the pass, or between its layers where memory must not wait. There a bucket can be begun when it is full and treated when
// the next one is: workers that come to it at different times, as they do between layers, then wait for nobody.
//
// Invariant: all workers treat the same buckets in the same order, whenever each becomes ready. The order is learned in the first pass of
// worker 0 and told to all.
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
  std::size_t index = 0;                        // the last of the arena is 0, whatever the order in which they leave
  std::int64_t begin = 0, end = 0;              // elements of the arena
  std::size_t first_entry = 0, last_entry = 0;  // the entries [first, last) that it is made of

  std::int64_t count() const { return end - begin; }
};

/// Cuts the arena into buckets of about `bytes` each, of whole entries, from its end on; private entries are in none. bytes ≤ 0: as few as
/// possible.
std::vector<Bucket> cut_buckets(const tensor::Arena& arena, std::int64_t bytes);

/// One bucket for each unit that has parameters, from the last one on; several where private entries lie between them.
std::vector<Bucket> unit_buckets(const tensor::Arena& arena);

/// The order in which buckets leave: by their last entry to be complete in `order` (entries, first to complete first).
std::vector<std::size_t> leaving_order(const std::vector<Bucket>& buckets, const std::vector<std::size_t>& order);

/// When a bucket is treated: after the pass, as soon as it is full in the thread of the pass, or then in a thread of its own.
enum class Leave { after_pass, in_pass, beside_pass };

class BucketLane {
 public:
  /// Blocks until the bucket is done, and says how much of that time was no communication.
  using Treat = std::function<Nanoseconds(const Bucket&)>;
  /// Begins a treatment without blocking.
  using Begin = std::function<void(const Bucket&)>;

  /// `begin`: of buckets that leave in the pass; null: they are treated when they are full.
  BucketLane(const tensor::Arena& arena, comm::Communicator& comm, const Clock& clock, Treat treat, Begin begin = nullptr);

  /// Between passes, alike on all workers.
  void configure(std::vector<Bucket> buckets, Leave leave);
  void configure(std::int64_t bytes, bool overlap) {
    configure(cut_buckets(arena_, bytes), overlap ? Leave::beside_pass : Leave::after_pass);
  }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  bool overlaps() const { return leave_ == Leave::beside_pass; }

  /// The gradients of entries [first, last) are complete.
  void ready(std::size_t first, std::size_t last);
  /// The pass is over: whatever was not announced leaves as it is. Returns when all buckets are done, and throws what went wrong.
  void finish();

  /// The training thread waited for communication; on a GPU its stream did.
  double exposed_s() const { return on_stream_.measures() ? on_stream_.seconds() : seconds(exposed_); }
  /// Buckets were in flight.
  double busy_s() const { return on_stream_.measures() ? on_stream_.seconds() : seconds(busy_); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void begin_pass();
  void learn();
  void launch();  // all buckets whose turn has come
  void treat(const Bucket& bucket);
  void treat_begun(std::size_t but);  // all but this many
  template <class Wait>
  void expose(Wait wait);

  const tensor::Arena& arena_;
  comm::Communicator& comm_;
  const Clock& clock_;
  Treat treat_;
  Begin begin_;
  Leave leave_ = Leave::after_pass;
  std::vector<std::size_t> order_;  // of entries; learned
  std::vector<std::size_t> seen_;   // the order of the first pass, while it is learned
  bool learned_ = false;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> turns_;      // buckets in the order in which they leave
  std::vector<std::size_t> bucket_of_;  // by entry; kNone of private ones
  std::vector<std::size_t> missing_;    // by bucket: entries that are not complete yet
  std::vector<bool> complete_;          // by entry
  std::size_t next_ = 0;                // turn
  std::size_t treated_ = 0;             // turn, in the pass: those between the two are begun

  Nanoseconds exposed_{0}, busy_{0};
  tensor::StreamTimer on_stream_;
  std::atomic<Nanoseconds> computed_{Nanoseconds(0)};  // of the treatment, what was no communication
  Lane lane_;                                          // last: its thread uses everything above
};

}  // namespace paceline::data_parallel
