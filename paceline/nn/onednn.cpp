#include "paceline/nn/onednn.h"

#include <ATen/Context.h>

#include "paceline/tensor/device.h"

namespace paceline::nn {

int onednn_block() {
  if (!at::hasMKLDNN() || !tensor::onednn_pays()) return 0;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? 16 : 8;
#else
  return 16;
#endif
}

}  // namespace paceline::nn
