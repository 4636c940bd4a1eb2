// The kernel behind softmax_loss. No CUDA header here: a stream is the void* behind cudaStream_t.
#pragma once

#include <cstdint>

namespace paceline::nn {

struct LossRows {
  std::int64_t rows = 0, classes = 0;
  bool bf16 = false;  // of the logits and their gradient; otherwise fp32
};

/// For each row, its loss and whether its first largest logit is the target's, to sums[0 … rows) and sums[rows … 2 rows); the gradient of
/// scale × loss if `gradient` is not null. A target that is not a class gives a loss of NaN.
void launch_softmax_loss(const LossRows& shape, const void* logits, const std::int64_t* targets, double smoothing, double scale,
                         double* sums, void* gradient, void* stream);

}  // namespace paceline::nn
