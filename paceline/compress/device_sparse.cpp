#include "paceline/compress/device_code.h"

#if PACELINE_WITH_CUDA

#include "paceline/compress/device_sparse_kernels.h"
#include "paceline/compress/device_tables.h"
#include "paceline/compress/sparse.h"
#include "paceline/compress/tensor_statistics.h"
#include "paceline/compress/top_coder.h"

namespace paceline::compress {
namespace {

constexpr std::int64_t kWordBytes = sizeof(std::uint32_t);

/// What the kernels of a sparse encoder work with.
class SparseOnGpu {
 public:
  SparseOnGpu(const char* name, const RangeLayout& layout, int index_bits)
      : tables_(layout, kStatisticsBlock, 0, [](std::int64_t) { return 0; }),
        choice_(gpu::allocate(sizeof(gpu::Choice))),
        counts_(
            gpu::allocate(gpu::SparseMemory::kDigits * sizeof(std::int64_t), std::vector<std::int64_t>(gpu::SparseMemory::kDigits).data())),
        before_(gpu::allocate(static_cast<std::size_t>(tables().unit_count + 1) * sizeof(gpu::HitsBefore))) {
    check_length(name, layout, index_bits);
  }

  const gpu::Tables& tables() const { return tables_.tables(); }
  gpu::SparseMemory memory() const {
    return {static_cast<gpu::Choice*>(choice_.get()), static_cast<std::int64_t*>(counts_.get()),
            static_cast<gpu::HitsBefore*>(before_.get())};
  }

 private:
  TablesOnGpu tables_;
  std::shared_ptr<void> choice_, counts_, before_;
};

class TopOnGpu final : public DeviceCode {
 public:
  TopOnGpu(const char* name, const CompressConfig& config, const RangeLayout& layout, Density density)
      : sparse_(name, layout, 32), config_(config), layout_(layout), density_(density) {}

  std::int64_t encode(float* values, const CodingContext& context, std::byte* code, void* stream) override {
    const std::int64_t k = count_of(layout_, density_(config_, context.epoch));
    if (k > 0) gpu::encode_top(sparse_.tables(), sparse_.memory(), k, values, code, stream);
    return 2 * kWordBytes * k;
  }
  void decode_add(std::span<const std::byte> code, float weight, float* sum, void* stream) const override {
    gpu::decode_top(code.data(), std::ssize(code) / (2 * kWordBytes), weight, sum, stream);
  }

 private:
  SparseOnGpu sparse_;
  CompressConfig config_;
  RangeLayout layout_;
  Density density_;
};

class ThresholdOnGpu final : public DeviceCode {
 public:
  ThresholdOnGpu(const CompressConfig& config, const RangeLayout& layout)
      : sparse_("threshold", layout, 31), threshold_(static_cast<float>(config.threshold)) {}

  std::int64_t encode(float* values, const CodingContext&, std::byte* code, void* stream) override {
    return kWordBytes * (1 + gpu::encode_threshold(sparse_.tables(), sparse_.memory(), threshold_, values, code, stream));
  }
  void decode_add(std::span<const std::byte> code, float weight, float* sum, void* stream) const override {
    gpu::decode_threshold(code.data(), std::ssize(code) / kWordBytes - 1, weight, sum, stream);
  }

 private:
  SparseOnGpu sparse_;
  float threshold_;
};

}  // namespace

std::unique_ptr<DeviceCode> threshold_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<ThresholdOnGpu>(config, layout);
}
std::unique_ptr<DeviceCode> topk_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<TopOnGpu>("topk", config, layout, topk_density);
}
std::unique_ptr<DeviceCode> dgc_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<TopOnGpu>("dgc", config, layout, dgc_density);
}

}  // namespace paceline::compress

#endif
