// Attention without the matrix of all positions by all positions: memory grows with the context, and not with its square.
//
//   forward:  P = softmax(q kᵀ/√head + mask);  o = (P ∘ dropout) v
//   backward: P again, from q and k;  ∂v = (P ∘ dropout)ᵀ∂o,  ∂P = ∂o vᵀ ∘ dropout,  ∂S = softmax'(∂P, P),  ∂q = ∂S k/√head,  ∂k = ∂Sᵀ
//   q/√head
//
// cuDNN's kernels, or LibTorch's flash and memory-efficient ones, compute it if LibTorch has them. Otherwise, and with dropout, whose masks
// are Paceline's own (masks.h), it is computed in blocks of rows (blocked_attention.h).
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

struct AttentionForm {
  bool causal = false;                    // a position sees itself and those before it
  double keep = 1;                        // share of the weights that dropout keeps in training
  std::int64_t first = 0, all_heads = 0;  // the heads of this rank are [first, first + …) of all of them, which decides their masks
};

/// Whether LibTorch's kernels compute attention without masks; otherwise it is computed in blocks.
bool has_attention_kernels();

/// qkv: [batch, T, 3, heads, head]. Returns [batch · T, heads · head]; what attend_back() needs in addition goes to `saved`.
at::Tensor attend(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass, Tensors& saved);

/// The gradient of qkv, in its shape; `gradient` is that of `mixed`, which attend() returned. If Pass::masks draws the masks, it must have
/// the same seed as in attend().
at::Tensor attend_back(const at::Tensor& gradient, const at::Tensor& qkv, const at::Tensor& mixed, const AttentionForm& form,
                       const Pass& pass, const Tensors& saved);

}  // namespace paceline::nn
