#include "paceline/train/diagnose.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/step/finite_tensors.h"

namespace paceline::train {
namespace {

using step::all_finite;

/// Buffers of a user's module that no pass averages may have such values for good, as a causal mask of −∞ has.
bool has_bad_statistic(nn::Model& model, std::size_t entry) {
  return model.statistics_momentum(entry) > 0 && !all_finite(model.statistics().parameter(entry));
}

/// The first parameter of a part that is not finite; -1 if all are.
std::int64_t bad_one_of(nn::Model& model, const nn::Part& part, bool with_statistics) {
  std::int64_t index = 0;
  for (const std::size_t entry : part.parameters) {
    if (!all_finite(model.arena().parameter(entry))) return index;
    ++index;
  }
  if (!with_statistics) return -1;
  for (const std::size_t entry : part.statistics) {
    if (has_bad_statistic(model, entry)) return index;
    ++index;
  }
  return -1;
}

}  // namespace

std::optional<Fault> bad_parameter(nn::Model& model, std::int64_t step, int rank) {
  bool good = true;
  if (!all_finite(model.statistics().parameters()))
    for (std::size_t entry = 0; entry < model.statistics().entries().size(); ++entry) good = good && !has_bad_statistic(model, entry);
  for (const tensor::OwnedRange& range : model.arena().owners(tensor::Role::parameter).ranges())
    if (range.held_by(rank)) good = good && all_finite(model.arena().parameters().narrow(0, range.begin, range.count()));
  if (good) return std::nullopt;
  const std::vector<nn::Part> parts = model.parts();
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (const std::int64_t bad = bad_one_of(model, parts[i], true); bad >= 0) return Fault{step, static_cast<std::int64_t>(i), bad};
  return std::nullopt;  // only the unused padding between entries was not finite
}

Fault first_fault(nn::Model& model, const at::Tensor& inputs, std::int64_t step, bool training) {
  if (inputs.is_floating_point() && !all_finite(inputs)) {
    model.take_part(inputs, training);  // other workers may run this as well
    return {step, Fault::kBatch};
  }
  const std::vector<nn::Part> parts = model.parts();
  std::optional<Fault> found;
  std::size_t looked_at = 0;  // of the parts
  nn::Pass pass;
  pass.training = training;
  const at::Tensor statistics = model.statistics().parameters().clone();  // batch norms change them in training mode
  model.walk(inputs, pass, [&](std::size_t index, const at::Tensor& output) {
    for (; !found && looked_at <= index; ++looked_at)
      if (const std::int64_t bad = bad_one_of(model, parts[looked_at], !training); bad >= 0)
        found = {step, static_cast<std::int64_t>(looked_at), bad};
    if (!found && !all_finite(output)) found = {step, static_cast<std::int64_t>(index)};
  });
  at::Tensor(model.statistics().parameters()).copy_(statistics);
  return found.value_or(Fault{step, static_cast<std::int64_t>(parts.size())});
}

bool is_in_loss(const nn::Model& model, const Fault& fault) { return fault.part >= std::ssize(model.parts()); }

std::string describe(nn::Model& model, const Fault& fault) {
  if (fault.part == Fault::kBatch) return "the batch itself has non-finite values";
  if (is_in_loss(model, fault)) return "the output of every layer is finite, but the loss is not";
  const nn::Part part = model.parts()[static_cast<std::size_t>(fault.part)];
  if (fault.parameter < 0) return fmt::format("the output of {} is not finite", part.name);
  const auto index = static_cast<std::size_t>(fault.parameter), parameters = part.parameters.size();
  if (index >= parameters + part.statistics.size())
    return fmt::format("a parameter of {} is not finite", part.name);  // it belongs to another stage
  const tensor::Entry& entry = index < parameters ? model.arena().entries()[part.parameters[index]]
                                                  : model.statistics().entries()[part.statistics[index - parameters]];
  return fmt::format("'{}' of {} is not finite", entry.name, part.name);
}

}  // namespace paceline::train
