// Attention without the matrix of all positions by all positions: memory grows with the context, and not with its square.
//
//   forward:  P = softmax(q kᵀ/√head + mask);  o = (P ∘ dropout) v
//   backward: P again, from q and k;  ∂v = (P ∘ dropout)ᵀ∂o,  ∂P = ∂o vᵀ ∘ dropout,  ∂S = softmax'(∂P, P),  ∂q = ∂S k/√head,  ∂k = ∂Sᵀ
//   q/√head
//
// cuDNN's kernels, or LibTorch's flash and memory-efficient ones, do it where LibTorch has them. Otherwise, and with dropout, whose masks
// are ours (masks.h), it is done in blocks of rows (blocked_attention.h).
#pragma once

#include "paceline/nn/op.h"

namespace paceline::nn {

struct AttentionForm {
  bool causal = false;                    // a position sees itself and those before it
  double keep = 1;                        // share of the weights that dropout keeps in training
  std::int64_t first = 0, all_heads = 0;  // the heads at hand are [first, first + …) of all of them, which decides on their masks
};

/// Whether LibTorch's kernels compute attention, where there are no masks; else it goes by blocks.
bool has_attention_kernels();

/// qkv: [batch, T, 3, heads, head]. Returns [batch · T, heads · head]; what attend_back() needs beside it goes to `saved`.
at::Tensor attend(const at::Tensor& qkv, const AttentionForm& form, const Pass& pass, Tensors& saved);

/// The gradient of qkv, in its shape, where `gradient` is that of `mixed`, which attend() returned. Where Pass::masks draws the masks, it
/// has the seed that it had then.
at::Tensor attend_back(const at::Tensor& gradient, const at::Tensor& qkv, const at::Tensor& mixed, const AttentionForm& form,
                       const Pass& pass, const Tensors& saved);

}  // namespace paceline::nn
