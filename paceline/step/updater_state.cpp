// The Updater's state among the ranks that hold it: in a checkpoint, out of one, and on its way to other owners.
#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/step/updater.h"

namespace paceline::step {
namespace {

comm::Buffer state_buffer(const at::Tensor& values) { return {values.data_ptr<float>(), values.numel()}; }

}  // namespace

// Who had an element and who has it now are known to all, so every pair sends and receives in the same order.
void Updater::follow_owners() {
  const tensor::Owners& now = arena_.owners(tensor::Role::moment);
  if (now == owners_) return;
  const tensor::Shard shard = arena_.shard(tensor::Role::moment, rank());
  for (at::Tensor& old : state_) {
    at::Tensor moved = arena_.allocate(tensor::Role::moment, shard);
    const auto place = [](const tensor::Shard& in, const at::Tensor& values, const tensor::OwnedRange& range) {
      return values.narrow(0, in.within(range.begin, range.end).at(0).place, range.count());
    };
    for (const tensor::OwnedRange& from : owners_.ranges())
      for (const tensor::OwnedRange& to : now.within(from.begin, from.end)) {
        const bool had = from.held_by(rank()), has = to.held_by(rank());
        if (had && has) place(shard, moved, to).copy_(place(shard_, old, to));
        if (from.owner == tensor::kEverybody || from.owner == to.owner) continue;
        for (int other = 0; other < comm_->size(); ++other) {
          if (!to.held_by(other) || other == from.owner) continue;
          if (rank() == from.owner) comm_->run(comm::send(state_buffer(place(shard_, old, to)), other));
          else if (rank() == other) comm_->run(comm::receive(state_buffer(place(shard, moved, to)), from.owner));
        }
      }
    old = moved;
  }
  owners_ = now, shard_ = shard;
  bind();
}

/// A row whose elements several ranks hold, on the rank that is to have it; undefined on the others.
at::Tensor Updater::gather_row(const at::Tensor& state, std::int64_t begin, std::int64_t end, int holder) const {
  at::Tensor row;
  if (rank() == holder) row = at::empty({end - begin}, state.options());
  for (const tensor::OwnedRange& part : owners_.within(begin, end)) {
    const auto mine = [&] { return state.narrow(0, shard_.within(part.begin, part.end).at(0).place, part.count()); };
    if (part.held_by(rank()) && rank() != holder && part.owner != tensor::kEverybody) comm_->run(comm::send(state_buffer(mine()), holder));
    if (rank() != holder) continue;
    const at::Tensor place = row.narrow(0, part.begin - begin, part.count());
    if (part.held_by(holder)) place.copy_(mine());
    else comm_->run(comm::receive(state_buffer(place), part.owner));
  }
  return row;
}

/// One value, on all ranks: it has no row that could be a part of it.
at::Tensor Updater::gather_scalar(const at::Tensor& state, std::int64_t element) const {
  at::Tensor value = at::zeros({1}, state.options());
  for (const tensor::Shard::Held& held : shard_.within(element, element + 1)) value.copy_(state.narrow(0, held.place, 1));
  comm_->run(comm::broadcast(state_buffer(value), {.root = owners_.of(element)}));
  return value.squeeze(0);
}

// A tensor is cut into whole rows, though ranges may be cut anywhere: a row belongs to whoever holds its first element.
void Updater::add_rows(std::vector<NamedTensor>& result, const std::string& name, const at::Tensor& state, std::size_t index) const {
  const tensor::Entry& entry = arena_.entries()[index];
  const std::int64_t row = entry.row(), end = entry.offset + entry.count;
  const auto add = [&](std::int64_t first, const at::Tensor& values) {
    result.push_back({name, arena_.view_rows(values, index), Rows{first, entry.rows()}});
  };
  const std::size_t before = result.size();
  std::set<std::int64_t> cut;  // rows
  const auto ranges = owners_.within(entry.offset, end);
  for (const tensor::OwnedRange& range : ranges)
    if (row > 0 && range.begin > entry.offset && (range.begin - entry.offset) % row != 0) cut.insert((range.begin - entry.offset) / row);
  for (const tensor::OwnedRange& range : ranges) {
    const std::int64_t first = (range.begin - entry.offset + row - 1) / row, last = (range.end - entry.offset) / row;
    if (range.held_by(rank()) && first < last) {
      const std::int64_t begin = entry.offset + first * row;
      add(first, state.narrow(0, shard_.within(begin, begin + 1).at(0).place, (last - first) * row));
    }
  }
  for (const std::int64_t i : cut) {
    const std::int64_t begin = entry.offset + i * row;
    const int owner = owners_.of(begin), holder = owner == tensor::kEverybody ? 0 : owner;
    if (const at::Tensor values = gather_row(state, begin, begin + row, holder); values.defined()) add(i, values);
  }
  if (result.size() == before) add(0, at::empty({0}, state.options()));
  std::ranges::sort(result.begin() + static_cast<std::ptrdiff_t>(before), result.end(), {}, &NamedTensor::first);
}

std::vector<NamedTensor> Updater::state() const {
  std::vector<NamedTensor> result;
  const auto names = optimizer_.state_names();
  for (std::size_t s = 0; s < names.size(); ++s)
    for (std::size_t i = 0; i < arena_.entries().size(); ++i) {
      const std::string name = fmt::format("optim.{}.{}", names[s], arena_.entries()[i].name);
      const tensor::Entry& entry = arena_.entries()[i];
      const auto held = shard_.within(entry.offset, entry.offset + entry.count);
      if (owners_.shared(entry.offset, entry.offset + entry.count))
        result.push_back({name, arena_.view_rows(state_[s].narrow(0, held.empty() ? 0 : held[0].place, entry.count), i)});
      else if (entry.shape.empty()) result.push_back({name, gather_scalar(state_[s], entry.offset)});
      else add_rows(result, name, state_[s], i);
    }
  return result;
}

void Updater::check(std::span<const NamedTensor> saved) const {
  std::set<std::string> known;
  for (const std::string& state : optimizer_.state_names())
    for (const tensor::Entry& entry : arena_.entries()) {
      const std::string& name = *known.insert(fmt::format("optim.{}.{}", state, entry.name)).first;
      const auto shape = saved_shape(saved, name);
      if (!shape)
        throw ConfigError(fmt::format("the checkpoint has no '{}', which this optimizer needs; resume with the same [optim]", name));
      if (*shape != entry.shape) throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", name));
    }
  for (const NamedTensor& item : saved)
    if (item.name.starts_with("optim.") && !known.contains(item.name))
      throw ConfigError(fmt::format("'{}' of the checkpoint is not part of this optimizer; resume with the same [optim]", item.name));
}

// Reads the rows that this rank holds elements of.
void Updater::load(std::span<const NamedTensor> saved) {
  check(saved);
  const auto names = optimizer_.state_names();
  for (std::size_t s = 0; s < names.size(); ++s)
    for (std::size_t i = 0; i < arena_.entries().size(); ++i) {
      const tensor::Entry& entry = arena_.entries()[i];
      const std::string name = fmt::format("optim.{}.{}", names[s], entry.name);
      for (const tensor::Shard::Held& held : shard_.within(entry.offset, entry.offset + entry.count)) {
        if (entry.shape.empty()) {
          state_[s].narrow(0, held.place, 1).copy_(find_saved(saved, name).view({1}));
          continue;
        }
        const std::int64_t begin = held.begin - entry.offset, end = held.end - entry.offset;
        const std::int64_t first = begin / entry.row(), last = (end + entry.row() - 1) / entry.row();
        at::Tensor rows = at::empty({(last - first) * entry.row()}, state_[s].options());
        arena_.view_rows(rows, i).copy_(saved_rows(saved, name, first, last));
        state_[s].narrow(0, held.place, end - begin).copy_(rows.narrow(0, begin - first * entry.row(), end - begin));
      }
    }
}

}  // namespace paceline::step
