// How the gradients of a bucket become their mean over the workers: as they are, or compressed.
#pragma once

#include <memory>

#include "paceline/compress/compressor.h"
#include "paceline/data_parallel/buckets.h"
#include "paceline/step/strategy.h"

namespace paceline::data_parallel {

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Between passes: the buckets are cut again.
  virtual void prepare(const std::vector<Bucket>&) {}
  virtual void begin_step(const step::Point&) {}
  /// The arena's gradients in the bucket become their mean over all workers. Collective.
  virtual void average(const Bucket& bucket) = 0;
  /// Only this worker's part of the bucket has to become the mean; what the other parts hold then, nobody reads. Collective.
  virtual void scatter(const Bucket& bucket) { average(bucket); }
  /// Begins the next scatter() without waiting for anybody, so that workers need not come to it at the same time. Those that were begun end
  /// in their order. Collective.
  virtual void begin_scatter(const Bucket&) {}

  virtual std::vector<step::NamedTensor> save() { return {}; }
  virtual void load(std::span<const step::NamedTensor>) {}

  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t bytes_plain() const { return bytes_plain_; }

 protected:
  std::int64_t bytes_sent_ = 0, bytes_plain_ = 0;
};

/// What an exchange works with. What it refers to outlives the exchange.
struct ExchangeSetup {
  tensor::Arena& arena;
  comm::Communicator& comm;
  std::string compression = "none";        // a key of compress::compressors()
  compress::CompressConfig compress = {};  // its settings
  double momentum = 0;                     // that the compressor applies where it carries the optimizer's (dgc)
  std::uint64_t seed = 0;                  // of stochastic rounding
  std::string algorithm = {};              // of the allreduces; empty: the communicator's own choice
  bool bf16 = false;                       // uncompressed gradients travel in bf16 and are added in fp32
};

/// Gradients as they are ("none") or compressed; one worker has nothing to compress. ConfigError if the arena cannot be compressed.
std::unique_ptr<Exchange> make_exchange(const ExchangeSetup& setup);
/// What `context.compression` says; one worker continues with what several before it did not send.
std::unique_ptr<Exchange> make_exchange(const step::Context& context);

}  // namespace paceline::data_parallel
