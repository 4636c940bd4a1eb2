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
    staying_peak_ = std::max<std::int64_t>(staying_peak_, now_ - travelling_->now);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::atomic<std::int64_t> now_{0}, peak_{0}, staying_peak_{0};
  std::shared_ptr<Travelling> travelling_ = std::make_shared<Travelling>();
};

MemoryMeter::MemoryMeter()
    : reporter_(std::make_shared<Reporter>()),
      guard_(std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE, reporter_)) {}

MemoryMeter::~MemoryMeter() = default;

bool MemoryMeter::counts_here() { return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr; }

std::int64_t MemoryMeter::now() const { return reporter_->now_; }
std::int64_t MemoryMeter::peak() const { return reporter_->peak_; }
std::int64_t MemoryMeter::staying() const { return reporter_->now_ - reporter_->travelling_->now; }
std::int64_t MemoryMeter::staying_peak() const { return reporter_->staying_peak_; }
std::int64_t MemoryMeter::travelling_peak() const { return reporter_->travelling_->peak; }
void MemoryMeter::reset_peaks() {
  reporter_->peak_ = now(), reporter_->staying_peak_ = staying();
  reporter_->travelling_->peak = reporter_->travelling_->now.load();
}

TravellingBytes::TravellingBytes(std::int64_t bytes) {
  c10::DebugInfoBase* const info = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
  if (const auto* reporter = dynamic_cast<MemoryMeter::Reporter*>(info)) counter_ = reporter->travelling_;
  add(bytes);
}

TravellingBytes& TravellingBytes::operator=(TravellingBytes&& other) noexcept {
  std::swap(counter_, other.counter_), std::swap(bytes_, other.bytes_);
  return *this;
}

TravellingBytes::~TravellingBytes() {
  if (counter_) counter_->now -= bytes_;
}

void TravellingBytes::add(std::int64_t bytes) {
  if (!counter_) return;
  bytes_ += bytes;
  counter_->peak = std::max<std::int64_t>(counter_->peak, counter_->now += bytes);
}

}  // namespace paceline::tensor
