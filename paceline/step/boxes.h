// What a rank holds of an arena, as boxes of whole tensors: views, from which checkpoints are written and into which they are read.
//
// Ranges of owners may begin and end anywhere, and an entry may be a slice of a tensor that ranks share. So a range of elements consists of
// a few boxes: the rest of a row, whole rows, the beginning of a row, and so on in the dimensions of a row.
#pragma once

#include "paceline/step/state.h"
#include "paceline/tensor/arena.h"

namespace paceline::step {

/// Elements [begin, end) of an entry, which `values` [end − begin] holds, as boxes in ascending order.
std::vector<NamedTensor> boxes_of(const tensor::Arena& arena, std::size_t entry, const std::string& name, std::int64_t begin,
                                  std::int64_t end, const at::Tensor& values);

/// Appends, for all tensors of the model, what this rank holds according to `held`, under prefix + name, from `flat`; for tensors of other
/// ranks, only the name.
void show(std::vector<NamedTensor>& result, const tensor::Arena& arena, const std::string& prefix, const at::Tensor& flat,
          std::span<const tensor::Shard::Held> held);

/// Fills the boxes of `targets` from a state. ConfigError if some of it is missing.
void fill(std::span<const NamedTensor> targets, std::span<const NamedTensor> state);

}  // namespace paceline::step
