// Finds where a run went wrong: the first part of the model whose weights or outputs are no longer finite.
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "paceline/nn/model.h"

namespace paceline::train {

/// A value that is not finite, as numbers that workers can exchange; the smallest is the first fault.
struct Fault {
  static constexpr std::int64_t kBatch = -1;  // part: the batch itself

  std::int64_t step = 0;
  std::int64_t part = 0;        // index in model.parts(); the loss comes after the last
  std::int64_t parameter = -1;  // index in the part's parameters, then its statistics; -1: the output of the part

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the zero that the result is compared with for a pointer
  auto operator<=>(const Fault&) const = default;
};

/// The first parameter or statistic, in the order of the parts, that is not finite.
std::optional<Fault> bad_parameter(nn::Model& model, std::int64_t step, int rank = 0);

/// The first fault in the order of the forward pass on `inputs`, which leaves the model as it was.
Fault first_fault(nn::Model& model, const at::Tensor& inputs, std::int64_t step, bool training);

/// Whether the output of every part is finite, and the loss is not.
bool is_in_loss(const nn::Model& model, const Fault& fault);

/// "'conv1.weight' of layer 'conv1' is not finite".
std::string describe(nn::Model& model, const Fault& fault);

}  // namespace paceline::train
