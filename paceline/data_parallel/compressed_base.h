// What all compressed exchanges share: the residual, to which a gradient is added and from which it is encoded, and the choice of device.
//
// Gradients on a GPU stay there if the compressor has kernels for it, together with residuals, codes and collectives. Otherwise each bucket
// is copied to host memory, exchanged there, and its mean copied back.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/compress/feedback.h"
#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

class Compressed : public Exchange {
 public:
  /// `has_kernels`: whether the compressor supports GPU memory.
  Compressed(const ExchangeSetup& setup, const compress::Compressor& compressor, bool has_kernels);

  void prepare(const std::vector<Bucket>& buckets) override;
  void begin_step(const step::Point& point) override;
  void average(const Bucket& bucket) final;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;

 protected:
  /// Averages values_ in the bucket over all workers.
  virtual void exchange(const Bucket& bucket) = 0;

  /// This worker's row of a checkpoint's tensors.
  std::vector<step::NamedTensor> rows(const std::string& name, const at::Tensor& flat) const;
  /// Whether `name` is missing because the checkpoint's run compressed nothing: a single worker, which has at most a residual that it has
  /// not applied yet, or several that sent uncompressed gradients. This exchange then starts as in a new run.
  bool is_optional(std::span<const step::NamedTensor> state, const std::string& name) const;

  /// Adds the gradient to the bucket's residual, which is what to send now.
  float* accumulate(const Bucket& bucket);
  /// Subtracts what was sent from the residual.
  void forget_sent(const Bucket& bucket);
  compress::Moment moment(const Bucket& bucket, std::uint64_t stage) const;
  void count_bytes(const Bucket& bucket, std::int64_t sent);
  float* gradients() const { return values_.data_ptr<float>(); }
  void* stream() const;  // the GPU's; null if values are in host memory
  static void fill_with_zeros(const at::Tensor& values);

  const ExchangeSetup setup_;
  tensor::Arena& arena_;
  compress::Feedback feedback_;
  comm::Communicator& comm_;
  at::Tensor values_;                           // [length]: the arena's gradients, or a copy of them in host memory
  at::Tensor residual_, momentum_;              // [length]
  std::vector<compress::RangeLayout> layouts_;  // by bucket
  compress::Moment moment_;

 private:
  bool by_way_of_host() const { return values_.is_cpu() && !arena_.gradients().is_cpu(); }
  compress::Feedback::Kept kept_of(const Bucket& bucket) const;
};

}  // namespace paceline::data_parallel
