// What all compressed exchanges share: the residual, to which a gradient is added and from which it is encoded. Gradients on a GPU stay
// there, together with residuals, codes and collectives.
#pragma once

#include <ATen/core/Tensor.h>

#include "paceline/compress/feedback.h"
#include "paceline/data_parallel/exchange.h"
#include "paceline/data_parallel/tensor_feedback.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::data_parallel {

class Compressed : public Exchange {
 public:
  Compressed(const ExchangeSetup& setup, const compress::Compressor& compressor);

  void prepare(const std::vector<Bucket>& buckets) override;
  void begin_step(const step::Point& point) override;
  std::vector<step::NamedTensor> save() override;
  void load(std::span<const step::NamedTensor> state) override;

 protected:
  /// This worker's row of a checkpoint's tensors.
  std::vector<step::NamedTensor> rows(const std::string& name, const at::Tensor& flat) const;
  /// Whether `name` is missing because the checkpoint's run compressed nothing: a single worker, which has at most a residual that it has
  /// not applied yet, or several that sent uncompressed gradients. This exchange then starts as in a new run.
  bool is_optional(std::span<const step::NamedTensor> state, const std::string& name) const;

  /// Adds the gradient to the bucket's residual, which is what to send now.
  float* accumulate(const Bucket& bucket);
  /// Subtracts what was sent from the residual.
  void forget_sent(const Bucket& bucket);
  compress::CodingContext context(const Bucket& bucket, std::uint64_t stage) const;
  void count_bytes(const Bucket& bucket, std::int64_t sent);
  float* gradients() const { return values_.data_ptr<float>(); }
  void* stream() const;  // the GPU's; null if values are in host memory
  static void fill_with_zeros(const at::Tensor& values);

  const compress::Compressor& compressor_;

  const ExchangeSetup setup_;
  tensor::Arena& arena_;
  compress::Feedback feedback_;
  comm::Communicator& comm_;
  at::Tensor values_;                           // [length]: the arena's gradients
  at::Tensor residual_, momentum_;              // [length]
  std::vector<compress::RangeLayout> layouts_;  // by bucket
  compress::CodingContext context_;
  tensor::TravellingBytes kept_;  // for all of them, from step to step

 private:
  compress::Feedback::Kept kept_of(const Bucket& bucket) const;
  KeptTensors tensors_of(const Bucket& bucket) const;
};

}  // namespace paceline::data_parallel
