#include "paceline/step/state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::step {

std::vector<std::int64_t> NamedTensor::shape() const {
  std::vector<std::int64_t> whole = tensor.sizes().vec();
  if (rows) whole.at(0) = rows->all;
  return whole;
}

std::optional<std::vector<std::int64_t>> saved_shape(std::span<const NamedTensor> state, const std::string& name) {
  const auto found = std::ranges::find(state, name, &NamedTensor::name);
  return found == state.end() ? std::nullopt : std::optional(found->shape());
}

at::Tensor saved_rows(std::span<const NamedTensor> state, const std::string& name, std::int64_t begin, std::int64_t end) {
  std::vector<at::Tensor> pieces;
  std::vector<const NamedTensor*> held;
  for (const NamedTensor& item : state)
    if (item.name == name) held.push_back(&item);
  std::ranges::sort(held, {}, &NamedTensor::first);
  std::int64_t next = begin;
  for (const NamedTensor* item : held) {
    const std::int64_t first = item->first(), last = first + item->tensor.size(0);
    if (last <= next || next >= end) continue;
    if (first > next) break;
    pieces.push_back(item->tensor.narrow(0, next - first, std::min(last, end) - next));
    next = std::min(last, end);
  }
  if (next < end) throw ConfigError(fmt::format("the checkpoint lacks row {} of '{}'; it is not whole", next, name));
  if (pieces.empty()) return held.front()->tensor.narrow(0, 0, 0);
  return pieces.size() == 1 ? pieces.front() : at::cat(pieces);
}

at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name) {
  const auto found = std::ranges::find(state, name, &NamedTensor::name);
  if (found == state.end()) return {};
  return found->rows ? saved_rows(state, name, 0, found->rows->all) : found->tensor;
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
