// GELU in the tanh form, as in GPT-2.
//
// LibTorch calls a scalar tanh for every element on processors that its vector library does not know, which was more than half of a small
// GPT's step. The loops in nn/loops.cpp vectorise on any processor.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "paceline/nn/loops.h"
#include "paceline/nn/ops/gelu.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

constexpr std::int64_t kGrain = 1 << 14;

bool has_own_loop(const at::Tensor& values) { return values.is_cpu() && values.scalar_type() == at::kFloat; }

class Gelu final : public Op {
 public:
  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    saved = {inputs[0].contiguous()};
    return gelu_values(saved[0]);
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {gelu_gradient(gradient.contiguous(), saved[0])};
  }
};

}  // namespace

at::Tensor gelu_values(const at::Tensor& x) {
  if (!has_own_loop(x)) return at::gelu(x, "tanh");
  at::Tensor y = at::empty_like(x);
  const auto* from = x.data_ptr<float>();
  auto* to = y.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) { loops::gelu(from + begin, to + begin, end - begin); });
  return y;
}

at::Tensor gelu_gradient(const at::Tensor& gradient, const at::Tensor& x) {
  if (!has_own_loop(x)) return at::gelu_backward(gradient, x, "tanh");
  at::Tensor out = at::empty_like(x);
  const float *from = x.data_ptr<float>(), *by = gradient.data_ptr<float>();
  auto* to = out.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain,
                   [&](std::int64_t begin, std::int64_t end) { loops::gelu_slope(from + begin, by + begin, to + begin, end - begin); });
  return out;
}

MadeOp make_gelu(const graph::Layer&, bool) { return std::make_unique<Gelu>(); }

}  // namespace paceline::nn
