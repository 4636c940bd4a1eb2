// How the gradients of a bucket become their mean over the workers: as they are, or compressed.
#pragma once

#include <memory>

#include "paceline/strategies/buckets.h"
#include "paceline/strategies/strategy.h"

namespace paceline::strategies {

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Between passes: the buckets are cut anew.
  virtual void prepare(const std::vector<Bucket>&) {}
  virtual void begin_step(const Point&) {}
  /// The arena's gradients in the bucket become their mean over all workers. Collective.
  virtual void average(const Bucket& bucket) = 0;

  virtual std::vector<NamedTensor> save() { return {}; }
  virtual void load(std::span<const NamedTensor>) {}

  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t bytes_plain() const { return bytes_plain_; }

 protected:
  std::int64_t bytes_sent_ = 0, bytes_plain_ = 0;
};

/// What `context.compression` says; "none": as they are.
std::unique_ptr<Exchange> make_exchange(const Context& context);

/// Payload that each of `workers` sends in a good allreduce of so many bytes.
inline std::int64_t allreduce_bytes(std::int64_t bytes, int workers) { return 2 * bytes * (workers - 1) / workers; }

/// The memory of a tensor's range, for a collective; on a GPU on LibTorch's present stream.
comm::Buffer buffer_of(const at::Tensor& flat, std::int64_t begin, std::int64_t end);

}  // namespace paceline::strategies
