// What a rank holds of an arena, as boxes of whole tensors: views, from which a checkpoint is written and into which one is read.
//
// Owners cut an arena anywhere, and an entry may be a slice of a tensor that ranks share. A range of elements is a few boxes: the rest of
// a row, whole rows, the beginning of a row, and so on in the dimensions of a row.
#pragma once

#include "paceline/step/state.h"
#include "paceline/tensor/arena.h"

namespace paceline::step {

/// Elements [begin, end) of an entry, which lie in `values` [end − begin], in ascending order.
std::vector<NamedTensor> boxes_of(const tensor::Arena& arena, std::size_t entry, const std::string& name, std::int64_t begin,
                                  std::int64_t end, const at::Tensor& values);

/// Appends what `held` says of all tensors of the model, under prefix + name, from `flat`, where it lies; of those that other ranks hold,
/// the name alone.
void show(std::vector<NamedTensor>& result, const tensor::Arena& arena, const std::string& prefix, const at::Tensor& flat,
          std::span<const tensor::Shard::Held> held);

/// Fills the boxes that `targets` show from a state. ConfigError where some of it is missing.
void fill(std::span<const NamedTensor> targets, std::span<const NamedTensor> state);

}  // namespace paceline::step
