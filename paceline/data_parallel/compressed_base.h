// What all compressed exchanges share: the residual, into which a gradient is added and from which it is encoded, and where that happens.
//
// Gradients on a GPU stay there where the compressor has kernels for it, and everything with them: residuals, codes, collectives. Where it
// has none, each bucket is copied to host memory, exchanged there, and its mean copied back.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/compress/feedback.h"
#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

class Compressed : public Exchange {
 public:
  /// `has_kernels`: the compressor works on memory of a GPU.
  Compressed(const ExchangeSetup& setup, const compress::Compressor& compressor, bool has_kernels);

  void prepare(const std::vector<Bucket>& buckets) override;
  void begin_step(const step::Point& point) override;
  void average(const Bucket& bucket) final;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;

 protected:
  /// values_ in the bucket become their mean over all workers.
  virtual void exchange(const Bucket& bucket) = 0;

  /// Whether `name` is absent because nobody compressed before: one worker, which has at most a residual that it has not applied yet, or
  /// several that sent gradients as they are. This exchange's state then begins as in a new run.
  static bool is_optional(std::span<const step::NamedTensor> state, const std::string& name);

  /// The bucket's residual with the gradient added: what is to be sent now.
  float* accumulate(const Bucket& bucket);
  /// Removes what was sent from the residual.
  void forget_sent(const Bucket& bucket);
  compress::Moment moment(const Bucket& bucket, std::uint64_t stage) const;
  void count_bytes(const Bucket& bucket, std::int64_t sent);
  float* gradients() const { return values_.data_ptr<float>(); }
  void* stream() const;  // of the GPU; null if values are the host's
  static void fill_with_zeros(const at::Tensor& values);

  const ExchangeSetup setup_;
  tensor::Arena& arena_;
  compress::Feedback feedback_;
  comm::Communicator& comm_;
  at::Tensor values_;                           // [length]: the arena's gradients, or their copy in host memory
  at::Tensor residual_, momentum_;              // [length]
  std::vector<compress::RangeLayout> layouts_;  // by bucket
  compress::Moment moment_;

 private:
  bool by_way_of_host() const { return values_.is_cpu() && !arena_.gradients().is_cpu(); }
  compress::Feedback::Kept kept_of(const Bucket& bucket) const;
};

}  // namespace paceline::data_parallel
