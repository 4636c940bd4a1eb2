#include "paceline/nn/attention.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <mutex>

#include "paceline/nn/blocked_attention.h"

// LibTorch's kernels as functions with these arguments.
#define PACELINE_WITH_ATTENTION_KERNELS (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5))

#if PACELINE_WITH_CUDA && PACELINE_WITH_ATTENTION_KERNELS
#include <ATen/cuda/CUDAContext.h>

#include "paceline/base/log.h"
#endif

namespace paceline::nn {

bool has_attention_kernels() { return PACELINE_WITH_ATTENTION_KERNELS; }

#if PACELINE_WITH_ATTENTION_KERNELS

namespace {

enum class Kernel { blocked, cudnn, flash, efficient, host };

/// Whether the run must repeat bit for bit (configure_libtorch).
bool repeats() { return at::globalContext().deterministicCuDNN(); }

#if PACELINE_WITH_CUDA
Kernel kernel_on_gpu(const at::Tensor& qkv) {
  const bool half = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  if (!half && qkv.scalar_type() != at::kFloat) return Kernel::blocked;
  const std::int64_t head = qkv.size(4);
  if (head % 8 != 0 || head > 256) {
    static std::once_flag said;
    std::call_once(said, [&] {
      log::warning(
          "LibTorch has no attention kernel for heads of {} features; attention uses a slower path. Make model.width / model.heads a "
          "multiple of 8, at most 256",
          head);
    });
    return Kernel::blocked;
  }
  if (!half) return Kernel::efficient;
  const int generation = at::cuda::getDeviceProperties(qkv.get_device())->major;
  if (generation < 8) return Kernel::blocked;
  // Faster than flash from Hopper on, but cuDNN's backward pass has no fixed order of additions.
  const bool cudnn = generation >= 9 && (head == 64 || head == 128) && qkv.size(1) % 64 == 0 && at::globalContext().versionCuDNN() >= 90100;
  return cudnn && !repeats() ? Kernel::cudnn : Kernel::flash;
}
#endif

Kernel kernel_for(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass) {
  if (pass.training && form.keep < 1) return Kernel::blocked;
#if PACELINE_WITH_CUDA
  if (qkv.is_cuda()) return kernel_on_gpu(qkv);
#endif
  return qkv.is_cpu() && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kBFloat16) ? Kernel::host : Kernel::blocked;
}

/// The kernels' backward passes add in the order in which their blocks finish, unless LibTorch is told to be deterministic. That switch is
/// global, and other operations throw under it; so it is on only during the kernel's call, if the run must repeat. Of those operations,
/// networks with attention only use matrix products, and tensor::configure_libtorch makes sure that these run.
class FixedOrder {
 public:
  FixedOrder() : on_(repeats()) {
    if (!on_) return;
    lock_ = std::unique_lock(mutex());
    at::Context& context = at::globalContext();
    was_on_ = context.deterministicAlgorithms(), warned_ = context.deterministicAlgorithmsWarnOnly();
    filled_ = context.deterministicFillUninitializedMemory();
    context.setDeterministicFillUninitializedMemory(false);
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~FixedOrder() {
    if (!on_) return;
    at::globalContext().setDeterministicAlgorithms(was_on_, warned_);
    at::globalContext().setDeterministicFillUninitializedMemory(filled_);
  }
  FixedOrder(const FixedOrder&) = delete;
  FixedOrder& operator=(const FixedOrder&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  bool on_, was_on_ = false, warned_ = false, filled_ = true;
  std::unique_lock<std::mutex> lock_;
};

/// Part `i` of qkv as the kernels take it: [batch, heads, T, head], a view.
at::Tensor part_of_qkv(const at::Tensor& qkv, std::int64_t i) { return qkv.select(2, i).transpose(1, 2); }

/// Rows [batch · T, heads · head] as the kernels take them.
at::Tensor by_head(const at::Tensor& rows, const at::Tensor& qkv) {
  return rows.view({qkv.size(0), qkv.size(1), qkv.size(3), qkv.size(4)}).transpose(1, 2);
}

at::Tensor as_rows(const at::Tensor& heads) {
  const at::Tensor last = heads.transpose(1, 2);  // [batch, T, heads, head]
  return last.reshape({last.size(0) * last.size(1), last.size(2) * last.size(3)});
}

}  // namespace

at::Tensor attend(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass, Tensors& saved) {
  const Kernel kernel = kernel_for(qkv, form, pass);
  if (kernel == Kernel::blocked) return blocked_attention(qkv, form, pass, saved);
  const at::Tensor q = part_of_qkv(qkv, 0), k = part_of_qkv(qkv, 1), v = part_of_qkv(qkv, 2);
  if (kernel == Kernel::flash) {
    const auto made = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, form.causal, false);
    saved = {std::get<1>(made), std::get<6>(made), std::get<7>(made)};
    return as_rows(std::get<0>(made));
  }
  if (kernel == Kernel::cudnn) {
    const auto made = at::_scaled_dot_product_cudnn_attention(q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, form.causal);
    saved = {std::get<1>(made), std::get<6>(made), std::get<7>(made)};
    return as_rows(std::get<0>(made));
  }
  if (kernel == Kernel::efficient) {
    const auto made = at::_scaled_dot_product_efficient_attention(q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, form.causal);
    saved = {std::get<1>(made), std::get<2>(made), std::get<3>(made)};
    return as_rows(std::get<0>(made));
  }
  const auto made = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, form.causal);
  saved = {std::get<1>(made)};
  return as_rows(std::get<0>(made));
}

at::Tensor attend_back(const at::Tensor& gradient, const at::Tensor& qkv, const at::Tensor& mixed, const AttentionForm& form,
                       const Pass& pass, const Tensors& saved) {
  const Kernel kernel = kernel_for(qkv, form, pass);
  if (kernel == Kernel::blocked) return blocked_attention_back(gradient, qkv, form, pass, saved);
  const at::Tensor q = part_of_qkv(qkv, 0), k = part_of_qkv(qkv, 1), v = part_of_qkv(qkv, 2);
  const at::Tensor out = by_head(mixed, qkv), by_out = by_head(gradient, qkv);
  at::Tensor dq, dk, dv, none;
  if (kernel == Kernel::flash) {
    const FixedOrder order;
    std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_backward(by_out, q, k, v, out, saved[0], none, none, q.size(2),
                                                                            q.size(2), 0.0, form.causal, saved[1], saved[2]);
  } else if (kernel == Kernel::cudnn) {
    std::tie(dq, dk, dv) = at::_scaled_dot_product_cudnn_attention_backward(by_out, q, k, v, out, saved[0], saved[1], saved[2], none, none,
                                                                            none, q.size(2), q.size(2), 0.0, form.causal);
  } else if (kernel == Kernel::efficient) {
    const FixedOrder order;
    std::tie(dq, dk, dv, none) = at::_scaled_dot_product_efficient_attention_backward(
        by_out, q, k, v, none, out, saved[0], saved[1], saved[2], 0.0, {true, true, true, false}, form.causal);
  } else {
    std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(by_out, q, k, v, out, saved[0], 0.0, form.causal);
  }
  return at::stack({dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)}, 2);
}

#else

at::Tensor attend(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass, Tensors& saved) {
  return blocked_attention(qkv, form, pass, saved);
}

at::Tensor attend_back(const at::Tensor& gradient, const at::Tensor& qkv, const at::Tensor&, const AttentionForm& form, const Pass& pass,
                       const Tensors& saved) {
  return blocked_attention_back(gradient, qkv, form, pass, saved);
}

#endif

}  // namespace paceline::nn
