// Attention in blocks of rows, for any type, device and size: the scores of a block are computed, used and discarded. A causal block skips
// the keys after its last row, which saves nearly half of the work. Arguments are those of attention.h.
#pragma once

#include "paceline/nn/attention.h"

namespace paceline::nn {

at::Tensor blocked_attention(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass, Tensors& saved);
at::Tensor blocked_attention_back(const at::Tensor& gradient, const at::Tensor& qkv, const AttentionForm& form, const Pass& pass,
                                  const Tensors& saved);

}  // namespace paceline::nn
