#include "paceline/tensor/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#if PACELINE_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#endif

namespace paceline::tensor {

std::int64_t free_memory([[maybe_unused]] const c10::Device& device) {
#if PACELINE_WITH_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard asked(device);
    std::size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) return static_cast<std::int64_t>(free_bytes);
  }
#endif
  return 0;
}

class MemoryMeter::Reporter final : public c10::MemoryReportingInfoBase {
 public:
#if TORCH_VERSION_MAJOR >= 2
  using Total = std::size_t;
#else
  using Total = std::int64_t;
#endif
  void reportMemoryUsage(void*, std::int64_t bytes, Total, Total, c10::Device) override {
    now_ += bytes;
    peak_ = std::max<std::int64_t>(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::atomic<std::int64_t> now_{0}, peak_{0};
};

MemoryMeter::MemoryMeter()
    : reporter_(std::make_shared<Reporter>()),
      guard_(std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE, reporter_)) {}

MemoryMeter::~MemoryMeter() = default;

bool MemoryMeter::counts_here() { return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr; }

std::int64_t MemoryMeter::now() const { return reporter_->now_; }
std::int64_t MemoryMeter::peak() const { return reporter_->peak_; }
void MemoryMeter::reset_peak() { reporter_->peak_ = reporter_->now_.load(); }

}  // namespace paceline::tensor
