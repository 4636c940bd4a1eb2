#include "paceline/step/boxes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace paceline::step {
namespace {

using Sizes = std::vector<std::int64_t>;

/// A box of a tensor in memory order, whose elements are contiguous, starting at `place`.
struct Stretch {
  Sizes first, shape;
  std::int64_t place = 0;
};

/// Cuts elements [begin, end) of the subtensor at the indices `at` into boxes.
void cut(const Sizes& shape, const Sizes& at, std::int64_t begin, std::int64_t end, std::int64_t place, std::vector<Stretch>& result) {
  if (begin == end) return;
  const std::size_t dim = at.size();
  const auto behind = shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1;
  const std::int64_t row = std::accumulate(behind, shape.end(), std::int64_t{1}, std::multiplies{});
  const auto inside = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
    Sizes deeper = at;
    deeper.push_back(index);
    cut(shape, deeper, from, to, place, result);
    place += to - from;
  };
  if (const std::int64_t skipped = begin % row, index = begin / row; skipped > 0 || end - begin < row) {
    const std::int64_t stop = std::min(end, (index + 1) * row);
    inside(index, skipped, stop - index * row);
    begin = stop;
  }
  if (const std::int64_t rows = (end - begin) / row; rows > 0) {
    Stretch& whole = result.emplace_back(Stretch{at, Sizes(dim, 1), place});
    whole.first.push_back(begin / row), whole.shape.push_back(rows);
    whole.first.resize(shape.size(), 0), whole.shape.insert(whole.shape.end(), behind, shape.end());
    begin += rows * row, place += rows * row;
  }
  if (begin < end) inside(begin / row, 0, end - begin);
}

/// A part of an entry (a whole tensor, or the rank's slice of one) as boxes of the tensor.
void add_boxes(std::vector<NamedTensor>& result, const std::string& name, const tensor::Entry& entry, const Sizes& first,
               const at::Tensor& values) {
  const Sizes whole = entry.whole();
  const auto add = [&](const Sizes& from, const at::Tensor& part) {
    if (part.sizes() == whole) result.push_back({name, part});
    else result.push_back({name, part, Box{from, whole}});
  };
  if (!entry.slice) return add(first, values);
  const std::int64_t dim = entry.slice->dim;
  const std::int64_t begin = first[static_cast<std::size_t>(dim)], end = begin + values.size(dim);
  std::int64_t before = 0;  // of the slice
  for (const tensor::Slice::Run& run : entry.slice->runs) {
    const std::int64_t from = std::max(begin, before), to = std::min(end, before + run.count);
    if (from < to) {
      Sizes place = first;
      place[static_cast<std::size_t>(dim)] = run.first + from - before;
      add(place, values.narrow(dim, from - begin, to - from));
    }
    before += run.count;
  }
}

}  // namespace

std::vector<NamedTensor> boxes_of(const tensor::Arena& arena, std::size_t index, const std::string& name, std::int64_t begin,
                                  std::int64_t end, const at::Tensor& values) {
  const tensor::Entry& entry = arena.entries()[index];
  std::vector<NamedTensor> result;
  if (end - begin == entry.count) {
    add_boxes(result, name, entry, Sizes(entry.shape.size(), 0), arena.view_rows(values, index));
    return result;
  }
  const Sizes order = arena.memory_order(index);
  Sizes shape, places(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    shape.push_back(entry.shape[static_cast<std::size_t>(order[k])]);
    places[static_cast<std::size_t>(order[k])] = static_cast<std::int64_t>(k);
  }
  std::vector<Stretch> stretches;
  cut(shape, {}, begin, end, 0, stretches);
  for (const Stretch& stretch : stretches) {
    const std::int64_t count = std::accumulate(stretch.shape.begin(), stretch.shape.end(), std::int64_t{1}, std::multiplies{});
    Sizes first(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) first[static_cast<std::size_t>(order[k])] = stretch.first[k];
    add_boxes(result, name, entry, first, values.narrow(0, stretch.place, count).view(stretch.shape).permute(places));
  }
  return result;
}

void show(std::vector<NamedTensor>& result, const tensor::Arena& arena, const std::string& prefix, const at::Tensor& flat,
          std::span<const tensor::Shard::Held> held) {
  for (const tensor::Listed& listed : arena.listing()) {
    const std::size_t before = result.size();
    const tensor::Entry* entry = listed.entry ? &arena.entries()[*listed.entry] : nullptr;
    const std::int64_t offset = entry ? entry->offset : 0, end = entry ? offset + entry->count : 0;
    for (const tensor::Shard::Held& range : held) {
      const std::int64_t from = std::max(range.begin, offset), to = std::min(range.end, end);
      if (!entry || from > to || (from == to && entry->count > 0)) continue;
      const at::Tensor values = flat.narrow(0, range.place + from - range.begin, to - from);
      for (NamedTensor& box : boxes_of(arena, *listed.entry, prefix + listed.name, from - offset, to - offset, values))
        result.push_back(std::move(box));
      if (entry->count == 0) break;
    }
    if (result.size() == before) result.push_back(others_hold(prefix + listed.name, flat.options()));
  }
}

void fill(std::span<const NamedTensor> targets, std::span<const NamedTensor> state) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& target : targets)
    if (target.held()) at::Tensor(target.tensor).copy_(saved_box(state, target.name, target.first(), target.tensor.sizes().vec()));
}

}  // namespace paceline::step
