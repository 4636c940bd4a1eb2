#include "paceline/step/state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"

namespace paceline::step {
namespace {

using Extents = std::vector<std::int64_t>;

std::int64_t elements_of(const Extents& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

/// A view of part of a tensor.
at::Tensor narrowed(at::Tensor tensor, const Extents& first, const Extents& shape) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] != tensor.size(static_cast<std::int64_t>(dim)))
      tensor = tensor.narrow(static_cast<std::int64_t>(dim), first[dim], shape[dim]);
  return tensor;
}

/// The intersection of two boxes: begins at `first` in the whole tensor; its shape has no elements if it is empty.
struct Common {
  Extents first, shape;
};

Common common_part(const Extents& first, const Extents& shape, const NamedTensor& piece) {
  Common common{first, shape};
  const Extents other = piece.first();
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::int64_t end = std::min(first[dim] + shape[dim], other[dim] + piece.tensor.size(static_cast<std::int64_t>(dim)));
    common.first[dim] = std::max(first[dim], other[dim]);
    common.shape[dim] = std::max<std::int64_t>(end - common.first[dim], 0);
  }
  return common;
}

Extents difference(const Extents& left, const Extents& right) {
  Extents result(left.size());
  std::ranges::transform(left, right, result.begin(), std::minus{});
  return result;
}

bool same_box(const NamedTensor& left, const NamedTensor& right) {
  return left.tensor.sizes() == right.tensor.sizes() && left.first() == right.first();
}

}  // namespace

std::vector<std::int64_t> NamedTensor::first() const { return box ? box->first : Extents(static_cast<std::size_t>(tensor.dim()), 0); }

std::vector<std::int64_t> NamedTensor::shape() const { return box ? box->whole : tensor.sizes().vec(); }

NamedTensor others_hold(const std::string& name, const at::TensorOptions& options) {
  return {name, at::empty({0}, options), Box{{0}, {0}}};
}

NamedTensor rows_of(const std::string& name, const at::Tensor& rows, std::int64_t first, std::int64_t all) {
  Box box{Extents(static_cast<std::size_t>(rows.dim()), 0), rows.sizes().vec()};
  box.first.at(0) = first, box.whole.at(0) = all;
  if (rows.size(0) == all) return {name, rows};
  return {name, rows, std::move(box)};
}

void Resumed::give_to(const std::function<void(std::span<const NamedTensor>)>& load) const {
  try {
    load(state);
  } catch (const ConfigError& problem) {
    throw ConfigError(fmt::format("{} does not fit: {}", source, problem.what()));
  }
}

std::optional<std::vector<std::int64_t>> saved_shape(std::span<const NamedTensor> state, const std::string& name) {
  const auto found = std::ranges::find_if(state, [&](const NamedTensor& item) { return item.name == name && item.held(); });
  return found == state.end() ? std::nullopt : std::optional(found->shape());
}

at::Tensor saved_box(std::span<const NamedTensor> state, const std::string& name, const Extents& first, const Extents& shape) {
  std::vector<const NamedTensor*> pieces;
  for (const NamedTensor& item : state) {
    if (item.name != name || !item.held()) continue;
    ensure(item.shape().size() == shape.size(), "a box has the dimensions of its tensor");
    const Common common = common_part(first, shape, item);
    if (common.shape == shape && common.first == first) return narrowed(item.tensor, difference(first, item.first()), shape);
    if (elements_of(common.shape) > 0 && std::ranges::none_of(pieces, [&](const NamedTensor* other) { return same_box(*other, item); }))
      pieces.push_back(&item);
  }
  const auto missing = [&] {
    return ConfigError(fmt::format("the checkpoint lacks a part of '{}', from [{}] on; it is incomplete", name, fmt::join(first, ", ")));
  };
  if (pieces.empty()) throw missing();
  at::Tensor whole = at::empty(shape, pieces.front()->tensor.options());
  std::int64_t filled = 0;
  for (const NamedTensor* piece : pieces) {
    const Common common = common_part(first, shape, *piece);
    narrowed(whole, difference(common.first, first), common.shape)
        .copy_(narrowed(piece->tensor, difference(common.first, piece->first()), common.shape));
    filled += elements_of(common.shape);
  }
  if (filled != whole.numel()) throw missing();
  return whole;
}

at::Tensor saved_rows(std::span<const NamedTensor> state, const std::string& name, std::int64_t begin, std::int64_t end) {
  auto shape = saved_shape(state, name);
  if (!shape) find_saved(state, name);  // throws the error
  Extents first(shape->size(), 0);
  first.at(0) = begin, shape->at(0) = end - begin;
  return saved_box(state, name, first, *shape);
}

at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name) {
  const auto shape = saved_shape(state, name);
  return shape ? saved_box(state, name, Extents(shape->size(), 0), *shape) : at::Tensor();
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
