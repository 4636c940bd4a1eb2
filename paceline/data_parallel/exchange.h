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
  /// Replaces the buckets. Called between passes.
  virtual void prepare(const std::vector<Bucket>&) {}
  virtual void begin_step(const step::Point&) {}
  /// Averages the arena's gradients in the bucket over all workers, or adds up their shares of the mean. Collective.
  virtual void average(const Bucket& bucket) = 0;
  /// Averages only this worker's part of the bucket; the other parts are undefined afterwards. Collective.
  virtual void scatter(const Bucket& bucket) { average(bucket); }
  /// Begins the next scatter() without waiting for anybody, so that workers need not reach it at the same time. Scatters end in the order
  /// in which they began. Collective.
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
  double momentum = 0;                     // applied by the compressor if it carries the optimizer's (dgc)
  std::uint64_t seed = 0;                  // of stochastic rounding
  std::string algorithm = {};              // of the allreduces; empty: the communicator's own choice
  bool bf16 = false;                       // uncompressed gradients are sent in bf16 and added in fp32
  bool shares = false;                     // uncompressed gradients are shares of the mean already, and are only added up
};

/// Uncompressed ("none") or compressed; a single worker has nothing to compress. ConfigError if the arena cannot be compressed.
std::unique_ptr<Exchange> make_exchange(const ExchangeSetup& setup);
/// The exchange for `context.compression`; `bf16`: as above. A single worker applies the residuals that several workers before it had not
/// sent.
std::unique_ptr<Exchange> make_exchange(const step::Context& context, bool bf16 = false);

}  // namespace paceline::data_parallel
