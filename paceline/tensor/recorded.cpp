#include "paceline/tensor/recorded.h"

#include <mutex>

#include "paceline/base/gpu_stream.h"

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace paceline::tensor {
namespace {

constexpr int kPlainRuns = 3;  // cuDNN picks its algorithms and the allocator finds its sizes in these

/// Workers that share a GPU are threads, and LibTorch registers a recording with generators that they share: one comes or goes at a time.
std::mutex& recording() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

#if PACELINE_WITH_CUDA

struct Recorded::State {
  at::cuda::CUDAGraph graph;
};

struct OwnStream::State {
  explicit State(const c10::Device& device) : guard(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}
  c10::cuda::CUDAStreamGuard guard;
};

OwnStream::OwnStream(const c10::Device& device) {
  if (device.is_cuda()) state_ = std::make_unique<State>(device);
}

void* current_stream(const c10::Device& device) {
  return device.is_cuda() ? c10::cuda::getCurrentCUDAStream(device.index()).stream() : nullptr;
}

void Recorded::run(const std::function<void()>& work) {
  if (!record_ || !device_.is_cuda()) return work();
  if (state_) return state_->graph.replay();
  if (plain_runs_++ < kPlainRuns) return work();  // not alone: workers may have to meet in it
  at::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  const std::lock_guard lock(recording());
  // A recording has memory of its own, and would hold as much again as the plain runs left in the allocator.
  c10::cuda::CUDACachingAllocator::emptyCache();
  auto state = std::make_unique<State>();
  state->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);  // what other threads do meanwhile is none of its business
  work();
  state->graph.capture_end();
  state_ = std::move(state);
  state_->graph.replay();  // recording does nothing yet: this is the run that was asked for
}

#else

struct Recorded::State {};
struct OwnStream::State {};

OwnStream::OwnStream(const c10::Device&) {}

void* current_stream(const c10::Device&) { return nullptr; }

void Recorded::run(const std::function<void()>& work) { work(); }

#endif

Recorded::Recorded(const c10::Device& device, bool record) : device_(device), record_(record) {}
Recorded::~Recorded() { forget(); }
Recorded::Recorded(Recorded&&) noexcept = default;
Recorded& Recorded::operator=(Recorded&&) noexcept = default;

OwnStream::~OwnStream() = default;

void Recorded::forget() {
  if (state_) {
    const std::lock_guard lock(recording());
    state_.reset();
  }
  plain_runs_ = 0;
}

}  // namespace paceline::tensor

void* paceline::current_gpu_stream(int device) {
  return tensor::current_stream(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}
