#include "paceline/nn/onednn.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "paceline/tensor/device.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::nn {

int onednn_block() {
  if (!at::hasMKLDNN() || !tensor::onednn_pays()) return 0;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? 16 : 8;
#else
  return 16;
#endif
}

int product_sums() {
  static const int found = [] {
    constexpr std::int64_t kSide = 128;
    const int threads = at::get_num_threads();  // first, since LibTorch's first look at it may change it
    const at::NoGradGuard no_grad;
    const at::Tensor matrix = at::ones({kSide, kSide}, at::kBFloat16);
    at::Tensor product = at::empty_like(matrix);
    const tensor::MemoryMeter meter;
    at::mm_out(product, matrix, matrix);
    return static_cast<int>(meter.peak() / (kSide * kSide * threads));
  }();
  return found;
}

}  // namespace paceline::nn
