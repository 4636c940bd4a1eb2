// The factories of all kinds, for the table in registry.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "paceline/graph/tensor_split.h"
#include "paceline/nn/op.h"
#include "paceline/nn/tensor_axis.h"

namespace paceline::nn {

using MadeOp = std::unique_ptr<Op>;

MadeOp make_conv(const graph::Layer& layer, bool in_place);
MadeOp make_fc(const graph::Layer& layer, bool in_place);
MadeOp make_batch_norm(const graph::Layer& layer, bool in_place);
MadeOp make_layer_norm(const graph::Layer& layer, bool in_place);
MadeOp make_activation(const graph::Layer& layer, bool in_place);
MadeOp make_gelu(const graph::Layer& layer, bool in_place);
MadeOp make_pool(const graph::Layer& layer, bool in_place);
MadeOp make_lrn(const graph::Layer& layer, bool in_place);
MadeOp make_dropout(const graph::Layer& layer, bool in_place);
MadeOp make_add(const graph::Layer& layer, bool in_place);
MadeOp make_concat(const graph::Layer& layer, bool in_place);
MadeOp make_flatten(const graph::Layer& layer, bool in_place);
MadeOp make_embedding(const graph::Layer& layer, bool in_place);
MadeOp make_attention(const graph::Layer& layer, bool in_place);
MadeOp make_experts(const graph::Layer& layer, bool in_place);

/// Attention with some of the heads; its c_proj computes partial sums without a bias.
MadeOp make_attention_part(const graph::Layer& whole, const graph::Slice::Run& heads, bool out_bias);
/// Looks up some of the tokens; the sum over the axis adds the others. `sequence`: returns this rank's positions.
MadeOp make_embedding_part(const graph::Layer& whole, const graph::Slice::Run& tokens, const TensorAxis& axis, bool sequence);

/// Throws ConfigError if a batch norm in training mode has one value per channel, which has no variance.
void refuse_one_value(const std::string& norm, std::int64_t values);

}  // namespace paceline::nn
