// A layer that the ranks of the tensor axis compute together, as graph/tensor_split.h says.
#pragma once

#include "paceline/graph/tensor_split.h"
#include "paceline/nn/op.h"
#include "paceline/nn/tensor_axis.h"

namespace paceline::nn {

/// `axis` outlives the op.
std::unique_ptr<Op> make_shared_op(const graph::Graph& graph, const graph::TensorSplit& split, std::size_t layer, const TensorAxis& axis,
                                   bool in_place);

}  // namespace paceline::nn
