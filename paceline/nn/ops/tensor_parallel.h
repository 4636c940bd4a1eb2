// A layer that the ranks of the tensor axis compute together, in the form that graph/tensor_split.h gives it.
#pragma once

#include "paceline/graph/tensor_split.h"
#include "paceline/nn/op.h"
#include "paceline/nn/tensor_axis.h"

namespace paceline::nn {

/// `axis` must outlive the op.
std::unique_ptr<Op> make_tensor_parallel_op(const graph::Graph& graph, const graph::TensorSplit& split, std::size_t layer,
                                            const TensorAxis& axis, bool in_place);

/// A product in column form with its bias, and GELU; nothing is exchanged between them. `axis` must outlive the op.
std::unique_ptr<Op> make_tensor_parallel_fc_and_gelu(const TensorAxis& axis);

/// Wraps `op`, which needs whole sequences, between layers that are split by positions: all ranks compute the same. `axis` must outlive it.
std::unique_ptr<Op> with_whole_sequences(std::unique_ptr<Op> op, const TensorAxis& axis);

}  // namespace paceline::nn
