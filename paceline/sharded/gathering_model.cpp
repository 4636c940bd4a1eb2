#include "paceline/sharded/gathering_model.h"

#include <fmt/format.h>

#include <utility>

#include "paceline/base/error.h"
#include "paceline/sharded/ownership.h"

namespace paceline::sharded {
namespace {

using tensor::Role;

/// Wraps the hooks of a pass: memory is committed before the caller's hook runs, and released after it.
nn::UnitHooks around(const nn::UnitHooks* given, nn::UnitHooks own) {
  if (!given) return own;
  const auto both = [](const auto& first, const auto& second) {
    return [first, second](std::size_t unit) {
      if (first) first(unit);
      if (second) second(unit);
    };
  };
  return {both(own.before_forward, given->before_forward), both(given->after_forward, own.after_forward),
          both(own.before_backward, given->before_backward), both(given->after_backward, own.after_backward)};
}

}  // namespace

GatheringModel::GatheringModel(std::shared_ptr<nn::Model> model, comm::Communicator& comm, const Clock& clock, int stage)
    : model_(std::move(model)), clock_(clock), stage_(stage), units_(model_->units().size()) {
  tensor::Arena& arena = model_->arena();
  arena.release(Role::gradient, 0, arena.length());
  if (stage_ < 3) return;
  if (model_->units().size() < 2)
    throw ConfigError(
        "parallel.zero=3 gathers the parameters unit by unit, but this module is a single unit; list its blocks (nn::ModuleModel, or a "
        "torch::nn::Sequential), or use parallel.zero=2");
  comm_ = comm.split(0, comm.rank());
  arena.set_owners(Role::parameter, part_owners(arena, data_parallel::unit_buckets(arena), comm.size()));
  release_all();
}

tensor::OwnedRange GatheringModel::range_of(std::size_t unit) const {
  const nn::Unit& found = model_->units()[unit];
  return model_->arena().range_of(found.first_entry, found.last_entry);
}

std::vector<tensor::OwnedRange> GatheringModel::shared_ranges(std::size_t unit) const {
  const nn::Unit& found = model_->units()[unit];
  return model_->arena().ranges(/*are_private=*/false, found.first_entry, found.last_entry);
}

void GatheringModel::gather(std::size_t unit) {
  const tensor::OwnedRange range = range_of(unit);
  tensor::Arena& arena = model_->arena();
  arena.commit(Role::parameter, range.begin, range.end);
  for (const tensor::OwnedRange& part : shared_ranges(unit))
    comm_->run(comm::all_gather(comm::Buffer(arena.parameters()).slice({part.begin, part.end})));
  model_->units_came({unit, unit + 1});
}

void GatheringModel::drop(std::size_t unit) {
  if (const auto& borrows = units()[unit].borrows) drop(*borrows);
  if (stage_ < 3 || units_[unit].state == State::absent) return;
  if (units_[unit].state == State::coming) lane_.wait(units_[unit].ticket);  // after an error: its memory is still being written
  const tensor::OwnedRange range = range_of(unit);
  units_[unit].state = State::absent;
  for (const tensor::OwnedRange& part : arena().owners(Role::parameter).within(range.begin, range.end))
    if (!part.held_by(comm_->rank())) arena().release(Role::parameter, part.begin, part.end);
  model_->units_go({unit, unit + 1});
}

// On a GPU the gather is enqueued on the stream of the pass, which keeps the order.
void GatheringModel::request(std::size_t unit, bool training) {
  if (const auto& borrows = units()[unit].borrows) request(*borrows, training);
  Presence& presence = units_[unit];
  if (presence.state != State::absent) return;
  const tensor::OwnedRange range = range_of(unit);
  presence.state = range.count() > 0 && device().is_cpu() ? State::coming : State::here;
  if (range.count() == 0) return;
  for (const tensor::OwnedRange& part : shared_ranges(unit))
    if (training)
      bytes_sent_ += scatter_bytes(part.count() * static_cast<std::int64_t>(arena().parameters().element_size()), comm_->size());
  if (!device().is_cpu()) return gather(unit);
  presence.ticket = lane_.start([this, unit] {
    const Nanoseconds began = clock_.now();
    gather(unit);
    busy_ = busy_.load() + clock_.now() - began;
  });
}

void GatheringModel::hold(std::size_t unit, std::size_t next, bool training) {
  if (stage_ < 3) return;
  request(unit, training);
  const Nanoseconds began = clock_.now();
  for (const std::size_t needed : {unit, units()[unit].borrows.value_or(unit)}) {
    if (units_[needed].state == State::coming) lane_.wait(units_[needed].ticket);
    units_[needed].state = State::here;
  }
  waited_ += clock_.now() - began;
  if (next != kNone) request(next, training);
}

nn::Traffic GatheringModel::traffic() const {
  nn::Traffic traffic = model_->traffic();
  traffic.waited_s += seconds(waited_), traffic.busy_s += seconds(busy_.load()), traffic.bytes_data += bytes_sent_;
  return traffic;
}

// Newly committed memory has arbitrary content, and a pass writes only the entries: this zeroes the padding between them.
void GatheringModel::commit_gradients(std::size_t unit) {
  if (const auto& borrows = units()[unit].borrows) commit_gradients(*borrows);  // its gradient is added to what this unit computes
  const tensor::OwnedRange range = range_of(unit);
  arena().commit(Role::gradient, range.begin, range.end);
  const nn::Unit& found = units()[unit];
  for (std::size_t i = found.first_entry; i < found.last_entry; ++i) {
    const tensor::Entry& entry = arena().entries()[i];
    const std::int64_t begin = entry.offset + entry.count, end = arena().range_of(i, i + 1).end;
    if (begin < end) arena().gradients().narrow(0, begin, end - begin).zero_();
  }
}

nn::Tensors GatheringModel::run(nn::Units range, nn::Tensors inputs, const nn::Pass& pass, nn::Trace* trace) {
  const nn::UnitHooks hooks = around(
      pass.hooks, {.before_forward = [&](std::size_t unit) { hold(unit, unit + 1 < range.last ? unit + 1 : kNone, trace != nullptr); },
                   .after_forward =
                       [&](std::size_t unit) {
                         if (!trace || unit + 1 < range.last) drop(unit);
                       },
                   .before_backward = {},
                   .after_backward = {}});
  nn::Pass inner = pass;
  inner.hooks = &hooks;
  return model_->run(range, std::move(inputs), inner, trace);
}

void GatheringModel::walk(const at::Tensor& input, const nn::Pass& pass, const nn::Visit& visit) {
  const nn::UnitHooks hooks =
      around(pass.hooks, {.before_forward = [&](std::size_t unit) { hold(unit, unit + 1 < units().size() ? unit + 1 : kNone, false); },
                          .after_forward = [&](std::size_t unit) { drop(unit); },
                          .before_backward = {},
                          .after_backward = {}});
  nn::Pass inner = pass;
  inner.hooks = &hooks;
  model_->walk(input, inner, visit);
}

void GatheringModel::go_back(nn::Units range, const nn::Pass& pass, const std::function<void(const nn::Pass&)>& body) {
  std::size_t next = range.last - 1;  // for the backward pass
  // A model that recomputes units before their backward passes makes forward passes in between.
  const auto before_forward = [&](std::size_t unit) { hold(unit, kNone, true); };
  const auto after_forward = [&](std::size_t unit) {
    if (unit != next) drop(unit);
  };
  const auto before_backward = [&](std::size_t unit) {
    next = unit > range.first ? unit - 1 : kNone;
    hold(unit, next, true);
    commit_gradients(unit);  // also if weight gradients are computed later: a norm computes its own together with its input's
  };
  const auto after_backward = [&](std::size_t unit) { drop(unit); };
  const nn::UnitHooks hooks = around(pass.hooks, {before_forward, after_forward, before_backward, after_backward});
  nn::Pass inner = pass;
  inner.hooks = &hooks;
  body(inner);
}

nn::Tensors GatheringModel::back(nn::Units range, nn::Tensors gradients, const nn::Pass& pass, nn::Trace& trace, const nn::Wanted& wanted,
                                 const nn::GradientReady& ready) {
  nn::Tensors inputs;
  go_back(range, pass, [&](const nn::Pass& inner) { inputs = model_->back(range, std::move(gradients), inner, trace, wanted, ready); });
  return inputs;
}

void GatheringModel::weight_gradients(nn::Units range, const nn::Pass& pass, nn::Trace& trace, const nn::GradientReady& ready) {
  for (std::size_t unit = range.last; unit-- > range.first;) {
    hold(unit, unit > range.first ? unit - 1 : kNone, true);
    commit_gradients(unit);
    model_->weight_gradients({unit, unit + 1}, pass, trace, ready);
    drop(unit);
  }
}

void GatheringModel::sit_out_run(nn::Units range, bool trained) {
  for (std::size_t unit = range.first; unit < range.last; ++unit) {
    hold(unit, unit + 1 < range.last ? unit + 1 : kNone, trained);
    if (!trained || unit + 1 < range.last) drop(unit);
  }
}

void GatheringModel::sit_out_back(nn::Units range, const nn::Pass& pass, const nn::GradientReady& ready) {
  go_back(range, pass, [&](const nn::Pass& inner) { model_->sit_out_back(range, inner, ready); });
}

// Copies of units that are present are made when they arrive; absent ones have none.
void GatheringModel::refresh() {
  if (stage_ < 3) model_->refresh();
}

void GatheringModel::gather_all() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) hold(unit, kNone, false);
}

void GatheringModel::release_all() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) drop(unit);
}

}  // namespace paceline::sharded
