// The state of a training run as named tensors, which is what a checkpoint holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <string_view>

namespace paceline::step {

/// A tensor of the training state under a name that says nothing of the number of workers.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
/// Part of the name of what says how a run came to its state, not what its next step computes: who is connected, what was counted. A
/// checkpoint keeps it, and state_hash leaves it out.
inline constexpr std::string_view kBookkeeping = ".bookkeeping.";

/// The tensor of that name; an undefined one where it is not there.
at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name);
/// The tensor of that name. ConfigError where it is not there.
at::Tensor find_saved(std::span<const NamedTensor> state, const std::string& name);

}  // namespace paceline::step
