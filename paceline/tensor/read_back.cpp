#include "paceline/tensor/read_back.h"

#include <ATen/ATen.h>

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace paceline::tensor {

struct ReadBack::State {
  at::Tensor host;
#if PACELINE_WITH_CUDA
  at::cuda::CUDAEvent copied;
#endif
};

ReadBack::ReadBack() : state_(std::make_unique<State>()) {}
ReadBack::~ReadBack() = default;
ReadBack::ReadBack(ReadBack&&) noexcept = default;
ReadBack& ReadBack::operator=(ReadBack&&) noexcept = default;

void ReadBack::start(const at::Tensor& values) {
  if (!state_->host.defined() || state_->host.is_pinned() != values.is_cuda())
    state_->host = at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(values.is_cuda()));
  state_->host.copy_(values, /*non_blocking=*/true);
#if PACELINE_WITH_CUDA
  if (values.is_cuda()) state_->copied.record();
#endif
}

const at::Tensor& ReadBack::wait() const {
#if PACELINE_WITH_CUDA
  if (state_->host.is_pinned()) state_->copied.synchronize();
#endif
  return state_->host;
}

struct QueueMark::State {
#if PACELINE_WITH_CUDA
  at::cuda::CUDAEvent reached;
#endif
};

QueueMark::QueueMark() = default;
QueueMark::~QueueMark() = default;
QueueMark::QueueMark(QueueMark&&) noexcept = default;
QueueMark& QueueMark::operator=(QueueMark&&) noexcept = default;

void QueueMark::set([[maybe_unused]] const c10::Device& device) {
#if PACELINE_WITH_CUDA
  if (!device.is_cuda()) return;
  state_ = std::make_unique<State>();
  state_->reached.record(c10::cuda::getCurrentCUDAStream(device.index()));
#endif
}

void QueueMark::wait() const {
#if PACELINE_WITH_CUDA
  if (state_) state_->reached.synchronize();
#endif
}

}  // namespace paceline::tensor
