#include "paceline/base/error.h"
#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

using graph::Kind;

//                kind            factory           overwrites  output may be overwritten
constexpr OpKind kKinds[] = {
    {Kind::conv, make_conv, false, true},
    {Kind::fc, make_fc, false, true},
    {Kind::batch_norm, make_batch_norm, false, true},
    {Kind::layer_norm, make_layer_norm, false, true},
    {Kind::relu, make_activation, true, false},
    {Kind::relu6, make_activation, true, false},
    {Kind::gelu, make_gelu, false, true},
    {Kind::tanh, make_activation, true, false},
    {Kind::sigmoid, make_activation, true, false},
    {Kind::max_pool, make_pool, false, true},
    {Kind::avg_pool, make_pool, false, true},
    {Kind::global_pool, make_pool, false, true},
    {Kind::lrn, make_lrn, false, false},
    {Kind::dropout, make_dropout, false, false},
    {Kind::add, make_add, true, true},
    {Kind::concat, make_concat, false, true},
    {Kind::flatten, make_flatten, false, false},
    {Kind::embedding, make_embedding, false, true},
    {Kind::attention, make_attention, false, true},
    {Kind::experts, make_experts, false, true},
};

}  // namespace

Tensors Op::backward_onto(const at::Tensor& gradient, const at::Tensor& onto, const Weights& weights, const Pass& pass,
                          const Tensors& saved) const {
  Tensors made = backward(gradient, weights, pass, saved, true);
  for (at::Tensor& input : made) input = onto + input;
  return made;
}

const OpKind& op_kind(graph::Kind kind) {
  for (const OpKind& row : kKinds)
    if (row.kind == kind) return row;
  throw InternalError("no operation for layers of kind " + std::string(graph::name_of(kind)));
}

}  // namespace paceline::nn
