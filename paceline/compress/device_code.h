// The codes of quantisers on memory of a GPU: the bytes that Coder makes of the same values, with the same residual, and no way through the
// host. Sums run in the lanes and the order of statistics.cpp, draws are those of draws.h, and no product is fused with a sum.
//
// A compressor without kernels has none of this (registry.cpp); its exchange goes by way of host memory.
#pragma once

#include <memory>

#include "paceline/compress/compressor.h"

namespace paceline::compress {

/// Of one layout, whose tables lie on the GPU that was current when it was made. All memory that it is given is that GPU's.
class DeviceCode {
 public:
  virtual ~DeviceCode() = default;
  /// As Coder::encode, on the stream, a cudaStream_t.
  virtual void encode(float* values, const Moment& moment, std::byte* code, void* stream) = 0;
  /// As Coder::decode_add, but the code is taken for one: it comes from this encode() of another worker.
  virtual void decode_add(const std::byte* code, float weight, float* sum, void* stream) const = 0;
};

#if PACELINE_WITH_CUDA
std::unique_ptr<DeviceCode> int8_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> dynamic8_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> onebit_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> sign_on_gpu(const CompressConfig& config, const RangeLayout& layout);
std::unique_ptr<DeviceCode> ternary_on_gpu(const CompressConfig& config, const RangeLayout& layout);
#else
inline constexpr std::nullptr_t int8_on_gpu = nullptr, dynamic8_on_gpu = nullptr, onebit_on_gpu = nullptr, sign_on_gpu = nullptr,
                                ternary_on_gpu = nullptr;
#endif

}  // namespace paceline::compress
