// The mask of a dropout: 0 with probability 1 − keep, otherwise 1/keep.
#pragma once

#include <optional>

#include "paceline/nn/op.h"

namespace paceline::nn {

/// Shaped like `values`; undefined if nothing is dropped. For a part of a tensor: that part of the whole tensor's mask, so that
/// ranks together drop what one rank would.
at::Tensor dropout_mask(const at::Tensor& values, const MaskPart& part, double keep, const Pass& pass);

/// `batch_of_workers`: the samples are those of Pass::shares, worker by worker, and each worker's mask is the one that it would
/// draw itself for this layer of the network.
std::unique_ptr<Op> make_dropout_part(const graph::Layer& whole, const MaskPart& part,
                                      std::optional<std::size_t> batch_of_workers = std::nullopt);

}  // namespace paceline::nn
