// Compressors in GPU memory: the same bytes and the same residual as on the CPU for the same values, without copies through the host. Sums
// have the lanes and the order of tensor_statistics.cpp, draws are those of draws.h, and no product is fused with a sum.
#pragma once

#include <memory>

#include "paceline/compress/compressor.h"

namespace paceline::compress {

/// For one layout, whose tables are on the GPU that was current when it was created. All memory passed to it must be on that GPU.
class DeviceCode {
 public:
  virtual ~DeviceCode() = default;
  /// Like Coder::encode, on the stream, a cudaStream_t. Waits for the stream only if the size depends on the values.
  virtual std::int64_t encode(float* values, const CodingContext& context, std::byte* code, void* stream) = 0;
  /// Like Coder::decode_add, but the code is not checked, because encode() on another worker made it.
  virtual void decode_add(std::span<const std::byte> code, float weight, float* sum, void* stream) const = 0;
};

#if PACELINE_WITH_CUDA
std::unique_ptr<DeviceCode> int8_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> dynamic8_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> onebit_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> sign_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> ternary_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> threshold_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> topk_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> dgc_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<Linear> powersgd_on_gpu(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed);
#else
inline constexpr std::nullptr_t int8_on_gpu = nullptr, dynamic8_on_gpu = nullptr, onebit_on_gpu = nullptr, sign_on_gpu = nullptr,
                                ternary_on_gpu = nullptr, threshold_on_gpu = nullptr, topk_on_gpu = nullptr, dgc_on_gpu = nullptr,
                                powersgd_on_gpu = nullptr;
#endif

}  // namespace paceline::compress
