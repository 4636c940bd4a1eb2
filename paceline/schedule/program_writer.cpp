#include "paceline/schedule/program_writer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

using Exchange = Action::Exchange;
using Lane = Action::Lane;
using Work = Action::Work;

ProgramWriter::ProgramWriter(const ProgramModel& model, const ProgramSettings& settings, int rank)
    : model_(model), settings_(settings), rank_(rank), parts_(settings.parts()), gathered_(model.units.size(), kAbsent) {
  const auto place = static_cast<std::size_t>(rank);
  for (int micro_batch = 0; micro_batch < parts_; ++micro_batch) samples_.push_back(settings.samples_of(micro_batch));
  if (settings.pipeline == 1) chunks_ = {{0, static_cast<int>(model.units.size())}};
  else {
    ensure(place < settings.stages.size(), "a program's settings have the units of every stage");
    const std::vector<int>& held = settings.stages[place];
    for (std::size_t i = 0; i + 1 < held.size(); i += 2) chunks_.push_back({held[i], held[i + 1]});
  }
  for (const UnitRange& chunk : chunks_)
    for (int unit = chunk.first; unit < chunk.last; ++unit)
      for (const ProgramModel::Tensor& tensor : model.units.at(static_cast<std::size_t>(unit)).tensors)
        entries_.push_back({tensor.elements, static_cast<std::size_t>(unit), tensor.is_private});
  // An upper bound of the number of actions, except for those that occur once: moving long programs is costly.
  const bool stops = !folds() && (settings.tensor > 1 || settings.recompute != "none" || gathers());
  const std::size_t again = settings.recompute == "none" ? 0 : settings.recompute == "units" ? 1 : 2;
  std::size_t actions = 9 * chunks_.size();  // passes, messages, waits for them
  for (const UnitRange& chunk : chunks_)
    for (int unit = chunk.first; stops && unit < chunk.last; ++unit) {
      const ProgramModel::Unit& of = model.units[static_cast<std::size_t>(unit)];
      actions += 3 + of.forward.size() + of.backward.size() + (gathers() ? 6 : 0) + again * (1 + of.forward.size());
    }
  program_.reserve(actions * static_cast<std::size_t>(parts_));
}

// Programs of large networks have millions of actions, so these are constructed in place.
Action& ProgramWriter::add() { return program_.emplace_back(); }

int ProgramWriter::compute(Lane lane, Work work, std::int64_t elements, std::vector<int> after) {
  Action& action = add();
  action.kind = Action::Kind::compute, action.lane = lane, action.after = std::move(after);
  action.work = work, action.elements = elements;
  return newest();
}

int ProgramWriter::communicate(Lane lane, Exchange exchange, Action::Axis axis, std::int64_t elements, double element_bytes,
                               std::vector<int> after) {
  Action& action = add();
  action.kind = Action::Kind::communicate, action.lane = lane, action.after = std::move(after);
  action.exchange = exchange, action.axis = axis, action.elements = elements, action.element_bytes = element_bytes;
  action.algorithm = settings_.algorithm;
  return newest();
}

int ProgramWriter::message(Lane lane, Exchange exchange, Action::Axis axis, int peer, int tag, std::int64_t elements, double element_bytes,
                           std::vector<int> after) {
  const int index = communicate(lane, exchange, axis, elements, element_bytes, std::move(after));
  program_.back().peer = peer, program_.back().tag = tag;
  return index;
}

int ProgramWriter::wait(std::vector<int> after) {
  add().after = std::move(after);
  return newest();
}

void ProgramWriter::update_all(std::int64_t elements, bool sharded) {
  const bool privately = std::ranges::any_of(entries_, &BucketEntry::is_private) && settings_.data > 1;
  const std::pair<Action::Axis, bool> shares[] = {{Action::Axis::data, sharded || privately},
                                                  {Action::Axis::tensor, settings_.tensor > 1},
                                                  {Action::Axis::pipeline, settings_.pipeline > 1}};
  for (const auto& [axis, shared] : shares)
    if (settings_.clips && shared) communicate(Lane::compute, Exchange::allreduce, axis, 1, sizeof(double));
  // Two sums for each tensor of which several ranks have parts.
  const auto sum_norms = [&](Action::Axis axis, int ranks, const auto& counts) {
    std::int64_t tensors = 0;
    for (const UnitRange& chunk : chunks_)
      for (int unit = chunk.first; unit < chunk.last; ++unit)
        tensors += std::ranges::count_if(model_.units[static_cast<std::size_t>(unit)].tensors, counts);
    if (settings_.adapts && ranks > 1 && tensors > 0) communicate(Lane::compute, Exchange::allreduce, axis, 2 * tensors, sizeof(double));
  };
  sum_norms(Action::Axis::data, settings_.data, [&](const ProgramModel::Tensor& tensor) { return sharded || tensor.is_private; });
  sum_norms(Action::Axis::tensor, settings_.tensor, [](const ProgramModel::Tensor& tensor) { return tensor.is_slice; });
  compute(Lane::compute, Work::update, elements);
}

std::vector<int> ProgramWriter::last(Lane lane) const {
  for (std::size_t i = program_.size(); i-- > 0;)
    if (program_[i].lane == lane) return {static_cast<int>(i)};
  return {};
}

std::int64_t ProgramWriter::elements() const {
  return std::accumulate(entries_.begin(), entries_.end(), std::int64_t{0},
                         [](std::int64_t sum, const BucketEntry& entry) { return sum + entry.elements; });
}

ProgramWriter::UnitRange ProgramWriter::units_of(int chunk) const { return chunks_.at(static_cast<std::size_t>(chunk)); }

void ProgramWriter::pass(Work work, UnitRange range, int micro_batch) {
  if (range.first == range.last) return;
  Action& action = add();
  action.kind = Action::Kind::compute, action.work = work;
  action.first = range.first, action.last = range.last, action.micro_batch = micro_batch;
}

void ProgramWriter::add_collectives(const std::vector<ProgramModel::LayerCollective>& collectives, int micro_batch) {
  for (const ProgramModel::LayerCollective& collective : collectives) {
    const int ranks = collective.axis == Action::Axis::tensor ? settings_.tensor : settings_.data;
    if (ranks > 1)
      communicate(Lane::compute, collective.exchange, collective.axis,
                  collective.elements * samples_[static_cast<std::size_t>(micro_batch)] + collective.fixed,
                  collective.element_bytes > 0 ? collective.element_bytes : static_cast<double>(settings_.activation_bytes));
  }
}

void ProgramWriter::request(int unit) {
  int& state = gathered_[static_cast<std::size_t>(unit)];
  if (state != kAbsent) return;
  state = kHere;
  // Private tensors stay where they are, and may be between others.
  const auto& tensors = model_.units[static_cast<std::size_t>(unit)].tensors;
  const std::vector<int> now = last(Lane::compute);
  for (std::size_t i = 0; i < tensors.size();) {
    std::int64_t shared = 0;
    for (; i < tensors.size() && !tensors[i].is_private; ++i) shared += tensors[i].elements;
    if (shared > 0)
      state =
          communicate(Lane::gather, Exchange::all_gather, Action::Axis::data, shared, static_cast<double>(settings_.storage_bytes), now);
    for (; i < tensors.size() && tensors[i].is_private; ++i) continue;
  }
}

void ProgramWriter::hold(int unit, int next) {
  if (!gathers()) return;
  request(unit);
  if (int& state = gathered_[static_cast<std::size_t>(unit)]; state != kHere) wait({std::exchange(state, kHere)});
  if (next >= 0) request(next);
}

void ProgramWriter::fold(Work work, UnitRange range, int micro_batch, const std::function<void()>& write) {
  const auto [found, missing] = folded_.try_emplace({work, range.first, samples_[static_cast<std::size_t>(micro_batch)]});
  std::vector<Action>& pass = found->second;
  if (missing) {
    const auto begin = static_cast<std::ptrdiff_t>(program_.size());
    write();
    pass.assign(program_.begin() + begin, program_.end());
    program_.resize(static_cast<std::size_t>(begin));
    if (pass.size() > 1) {
      Action whole{.kind = Action::Kind::compute, .work = work, .first = range.first, .last = range.last};
      whole.parts = Action::Parts(std::move(pass));
      pass = {std::move(whole)};
    }
  }
  for (const Action& action : pass) program_.push_back(action), program_.back().micro_batch = micro_batch;
}

void ProgramWriter::forward(UnitRange range, int micro_batch) {
  if (!folds()) return forward_units(range, micro_batch);
  fold(Work::forward, range, micro_batch, [&] { forward_units(range, micro_batch); });
}

void ProgramWriter::backward(UnitRange range, int micro_batch, Work work, const GradientListener* listener) {
  if (!folds() || listener) return backward_units(range, micro_batch, work, listener);
  fold(work, range, micro_batch, [&] { backward_units(range, micro_batch, work, nullptr); });
}

void ProgramWriter::forward_units(UnitRange range, int micro_batch) {
  UnitRange open{range.first, range.first};
  for (int unit = range.first; unit < range.last; ++unit) {
    hold(unit, unit + 1 < range.last ? unit + 1 : -1);
    open.last = unit + 1;
    const auto& collectives = model_.units[static_cast<std::size_t>(unit)].forward;
    if (!gathers() && collectives.empty() && unit + 1 < range.last) continue;
    pass(Work::forward, std::exchange(open, {unit + 1, unit + 1}), micro_batch);
    add_collectives(collectives, micro_batch);
    if (gathers() && unit + 1 < range.last) drop(unit);
  }
  if (range.last == static_cast<int>(model_.units.size())) add_collectives(model_.loss, micro_batch);
}

/// Recomputes a unit from its kept input.
void ProgramWriter::forward_again(int unit, int micro_batch) {
  pass(Work::forward, {unit, unit + 1}, micro_batch);
  add_collectives(model_.units[static_cast<std::size_t>(unit)].forward, micro_batch);
}

// As nn::RecomputingModel: `units` recomputes every unit except the model's last; `all` recomputes a segment, which keeps its last unit
// completely, and then recomputes its other units once more.
bool ProgramWriter::recomputes(UnitRange segment, int unit) const {
  if (settings_.recompute == "units") return unit + 1 < static_cast<int>(model_.units.size());
  return settings_.recompute == "all" && (segment.last == segment.first + 1 || unit + 1 < segment.last);
}

ProgramWriter::UnitRange ProgramWriter::segment_of(UnitRange range, int unit) const {
  const auto length = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(range.last - range.first))));
  const int first = range.first + (unit - range.first) / length * length;
  return {first, std::min(first + length, range.last)};
}

void ProgramWriter::open_segment(UnitRange segment, int micro_batch) {
  for (int unit = segment.first; unit < segment.last; ++unit) {
    hold(unit, -1);
    forward_again(unit, micro_batch);
    if (unit + 1 < segment.last) drop(unit);
  }
}

void ProgramWriter::backward_units(UnitRange range, int micro_batch, Work work, const GradientListener* listener) {
  const bool again = settings_.recompute != "none" && work != Work::weight_gradients;
  UnitRange open{range.last, range.last};
  for (int unit = range.last; unit-- > range.first;) {
    const UnitRange segment = segment_of(range, unit);
    if (again && settings_.recompute == "all" && unit + 1 == segment.last && segment.last > segment.first + 1)
      open_segment(segment, micro_batch);
    hold(unit, unit > range.first ? unit - 1 : -1);
    if (again && recomputes(segment, unit)) forward_again(unit, micro_batch);
    open.first = unit;
    const auto& collectives = model_.units[static_cast<std::size_t>(unit)].backward;
    const bool stops = listener && listener->wants && listener->wants(unit);
    if (!gathers() && !again && collectives.empty() && !stops && unit > range.first) continue;
    pass(work, open, micro_batch);
    if (work != Work::weight_gradients) add_collectives(collectives, micro_batch);
    drop(unit);
    if (listener && listener->complete) listener->complete(open.first, open.last);
    open = {unit, unit};
  }
}

void ProgramWriter::passes(const GradientListener& listener) {
  if (settings_.pipeline > 1) pipeline_passes(listener);
  else local_passes(listener);
}

void ProgramWriter::local_passes(const GradientListener& listener) {
  for (int micro_batch = 0; micro_batch < parts_; ++micro_batch) {
    const bool over = listener.each_part || micro_batch + 1 == parts_;
    forward(units_of(0), micro_batch);
    backward(units_of(0), micro_batch, Work::backward, over ? &listener : nullptr);
    if (over && listener.pass_over) listener.pass_over();
  }
}

int ProgramWriter::border_message(Lane lane, Exchange exchange, const PipelineMessage& message, std::vector<int> after) {
  const std::vector<int>& behind = settings_.stages[static_cast<std::size_t>(message.border % settings_.pipeline)];
  const int last = behind.at(static_cast<std::size_t>(message.border / settings_.pipeline * 2 + 1)) - 1;  // unit before the border
  const std::int64_t elements =
      model_.units.at(static_cast<std::size_t>(last)).border * samples_[static_cast<std::size_t>(message.micro_batch)];
  return this->message(lane, exchange, Action::Axis::pipeline, message.peer, 2 * message.border + (message.gradients ? 1 : 0), elements,
                       static_cast<double>(settings_.activation_bytes), std::move(after));
}

bool ProgramWriter::has_unit(int rank, int unit) const {
  const std::vector<int>& held = settings_.stages[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < held.size(); i += 2)
    if (held[i] <= unit && unit < held[i + 1]) return true;
  return false;
}

int ProgramWriter::stage_with(int unit) const {
  for (int rank = 0; rank < settings_.pipeline; ++rank)
    if (has_unit(rank, unit)) return rank;
  throw InternalError(fmt::format("no stage has unit {}", unit));
}

/// The table of tied embeddings to the stage of the head, or its gradient back.
void ProgramWriter::tied_message(bool gradient, bool sends) {
  constexpr int kTag = 1 << 20;  // beyond those of borders
  const ProgramModel::Tied& tied = model_.tied;
  const int other = stage_with(has_unit(rank_, tied.table) ? tied.head : tied.table);
  message(Lane::compute, sends ? Exchange::send : Exchange::receive, Action::Axis::pipeline, other, kTag + (gradient ? 1 : 0),
          tied.elements, static_cast<double>(gradient ? settings_.gradient_bytes() : settings_.activation_bytes));
}

// As pipeline::PipelinePass: the receive for the next step is started before this one computes, and a send is not waited for.
void ProgramWriter::pipeline_passes(const GradientListener& listener) {
  const PipelineProblem problem{.stages = settings_.pipeline, .micro_batches = parts_, .chunks = settings_.chunks};
  const PipelineSteps steps = steps_of(find(pipelines(), "pipeline schedule", settings_.schedule), problem, rank_);
  using Kind = PipelineStep::Kind;
  int expected = -1;  // the receive that the next step waits for
  const auto expect = [&](const PipelineStep& step) {
    if (const auto message = received(problem, rank_, step); message && expected < 0)
      expected = border_message(Lane::receive, Exchange::receive, *message, last(Lane::compute));
  };
  const bool tied = model_.tied.table >= 0 && has_unit(rank_, model_.tied.table) != has_unit(rank_, model_.tied.head);
  const bool owns = tied && has_unit(rank_, model_.tied.table);
  bool sent_table = !owns;
  if (tied && !owns) tied_message(/*gradient=*/false, /*sends=*/false);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PipelineStep& step = steps[i];
    expect(step);
    if (expected >= 0) wait({std::exchange(expected, -1)});
    if (i + 1 < steps.size()) expect(steps[i + 1]);
    const UnitRange range = units_of(step.chunk);
    const bool completes = frees(step.kind) && step.micro_batch + 1 == parts_;
    if (!sent_table && range.first <= model_.tied.table && model_.tied.table < range.last)
      tied_message(/*gradient=*/false, sent_table = true);
    if (step.kind == Kind::forward) forward(range, step.micro_batch);
    else
      backward(range, step.micro_batch,
               step.kind == Kind::backward         ? Work::backward
               : step.kind == Kind::backward_input ? Work::input_gradients
                                                   : Work::weight_gradients,
               completes ? &listener : nullptr);
    if (const auto message = sent(problem, rank_, step)) border_message(Lane::send, Exchange::send, *message, last(Lane::compute));
  }
  if (tied) tied_message(/*gradient=*/true, /*sends=*/!owns);
  if (listener.pass_over) listener.pass_over();
}

}  // namespace paceline::schedule
