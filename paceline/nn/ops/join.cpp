// Layers that only move or add data: add, concat, flatten.
#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

class Add final : public Op {
 public:
  Add(std::size_t inputs, bool in_place) : inputs_(inputs), in_place_(in_place) {}

  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors&) const override {
    const at::Tensor& first = inputs[0];
    at::Tensor sum = in_place_ ? first.add_(inputs[1]) : first + inputs[1];
    for (std::size_t i = 2; i < inputs_; ++i) sum.add_(inputs[i]);
    return sum;
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors&, bool) const override {
    return Tensors(inputs_, gradient);
  }

 private:
  std::size_t inputs_;
  bool in_place_;
};

class Concat final : public Op {
 public:
  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    saved = inputs;  // for their sizes
    return at::cat(inputs, 1);
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    Tensors parts;
    std::int64_t begin = 0;
    for (const at::Tensor& input : saved) {
      parts.push_back(gradient.narrow(1, begin, input.size(1)));
      begin += input.size(1);
    }
    return parts;
  }
};

class Flatten final : public Op {
 public:
  at::Tensor forward(const Tensors& inputs, const Weights&, const Pass&, Tensors& saved) const override {
    saved = {inputs[0]};  // for its shape
    return inputs[0].flatten(1);
  }

  Tensors backward(const at::Tensor& gradient, const Weights&, const Pass&, const Tensors& saved, bool) const override {
    return {gradient.reshape(saved[0].sizes())};
  }
};

}  // namespace

MadeOp make_add(const graph::Layer& layer, bool in_place) { return std::make_unique<Add>(layer.inputs.size(), in_place); }
MadeOp make_concat(const graph::Layer&, bool) { return std::make_unique<Concat>(); }
MadeOp make_flatten(const graph::Layer&, bool) { return std::make_unique<Flatten>(); }

}  // namespace paceline::nn
