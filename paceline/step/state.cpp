#include "paceline/step/state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::step {

at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name) {
  const auto found = std::ranges::find(state, name, &NamedTensor::name);
  return found == state.end() ? at::Tensor() : found->tensor;
}

at::Tensor find_saved(std::span<const NamedTensor> state, const std::string& name) {
  at::Tensor found = saved_or_none(state, name);
  if (!found.defined())
    throw ConfigError(
        fmt::format("the checkpoint has no '{}', which this strategy needs; resume with the strategy and the compression that "
                    "wrote it",
                    name));
  return found;
}

}  // namespace paceline::step
