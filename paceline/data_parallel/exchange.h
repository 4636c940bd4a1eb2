// How the gradients of a bucket become their mean over the workers: as they are, or compressed.
#pragma once

#include <memory>

#include "paceline/data_parallel/buckets.h"
#include "paceline/step/strategy.h"

namespace paceline::data_parallel {

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Between passes: the buckets are cut anew.
  virtual void prepare(const std::vector<Bucket>&) {}
  virtual void begin_step(const step::Point&) {}
  /// The arena's gradients in the bucket become their mean over all workers. Collective.
  virtual void average(const Bucket& bucket) = 0;

  virtual std::vector<step::NamedTensor> save() { return {}; }
  virtual void load(std::span<const step::NamedTensor>) {}

  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t bytes_plain() const { return bytes_plain_; }

 protected:
  std::int64_t bytes_sent_ = 0, bytes_plain_ = 0;
};

/// What `context.compression` says; "none": as they are.
std::unique_ptr<Exchange> make_exchange(const step::Context& context);

}  // namespace paceline::data_parallel
