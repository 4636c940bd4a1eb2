// The Updater's state: saved to a checkpoint, loaded from one, and moved to other owners.
#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/step/boxes.h"
#include "paceline/step/updater.h"

namespace paceline::step {
namespace {

constexpr const char* kMasters = "optim.master.";

}  // namespace

// All ranks know the old and the new owner of every element, so every pair sends and receives in the same order.
void Updater::follow_owners() {
  const tensor::Owners& now = arena_.owners(tensor::Role::moment);
  if (now == owners_) return;
  const tensor::Shard shard = arena_.shard(tensor::Role::moment, rank());
  for (at::Tensor& old : state_) {
    at::Tensor moved = allocate(role(static_cast<std::size_t>(&old - state_.data())), shard);
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
          if (rank() == from.owner) comm_->run(comm::send(place(shard_, old, to), other));
          else if (rank() == other) comm_->run(comm::receive(place(shard, moved, to), from.owner));
        }
      }
    old = moved;
  }
  owners_ = now, shard_ = shard;
  bind();
}

std::vector<NamedTensor> Updater::state() const {
  std::vector<NamedTensor> result;
  std::vector<std::string> names = this->names();
  if (has_masters() && !rounds_) names.pop_back();  // the parameters have the same bits
  for (std::size_t s = 0; s < names.size(); ++s) show(result, arena_, fmt::format("optim.{}.", names[s]), state_[s], shard_.held());
  return result;
}

void Updater::check(std::span<const NamedTensor> saved) const {
  std::set<std::string> known;
  for (const std::string& state : optimizer_.state_names())
    for (const tensor::Listed& listed : arena_.listing()) {
      const std::string& name = *known.insert(fmt::format("optim.{}.{}", state, listed.name)).first;
      const auto shape = saved_shape(saved, name);
      const auto is_it = [&](const NamedTensor& item) { return item.name == name; };
      if (!shape && (listed.entry || std::ranges::none_of(saved, is_it)))  // of another rank's tensor the name is enough
        throw ConfigError(fmt::format("the checkpoint has no '{}', which this optimizer needs; resume with the same [optim]", name));
      if (listed.entry && shape != arena_.entries()[*listed.entry].whole())
        throw ConfigError(fmt::format("'{}' of the checkpoint has another shape than this model's", name));
    }
  for (const NamedTensor& item : saved)
    if (item.name.starts_with("optim.") && !item.name.starts_with(kMasters) && !known.contains(item.name))
      throw ConfigError(fmt::format("'{}' of the checkpoint is not part of this optimizer; resume with the same [optim]", item.name));
}

// A run may resume with another storage: its parameters then become the masters, or its masters the parameters, which are already loaded.
void Updater::load(std::span<const NamedTensor> saved) {
  check(saved);
  const bool masters = std::ranges::any_of(saved, [](const NamedTensor& item) { return item.name.starts_with(kMasters); });
  std::vector<NamedTensor> targets = state();
  if (!masters) {
    std::erase_if(targets, [](const NamedTensor& item) { return item.name.starts_with(kMasters); });
    fill_masters();
  } else if (!rounds_) {
    std::vector<tensor::Shard::Held> held;
    for (const tensor::OwnedRange& range : arena_.owners(tensor::Role::parameter).ranges())
      if (range.held_by(rank())) held.push_back({range.begin, range.end, range.begin});
    show(targets, arena_, kMasters, arena_.parameters(), held);
  }
  fill(targets, saved);
  if (!rounds_) fill_masters();
}

}  // namespace paceline::step
