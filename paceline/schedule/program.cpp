#include "paceline/schedule/program.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

Action::Parts::Parts(std::vector<Action> actions) : shared_(std::make_shared<const std::vector<Action>>(std::move(actions))) {}

bool Action::Parts::operator==(const Parts& other) const {
  return shared_ == other.shared_ || (shared_ && other.shared_ && *shared_ == *other.shared_);
}

int ProgramSettings::parts() const { return static_cast<int>(std::max<std::int64_t>(std::min(micro_batches, samples), 1)); }

std::int64_t ProgramSettings::samples_of(int micro_batch) const { return part(samples, parts(), micro_batch).size(); }

std::string_view name_of(Action::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"compute", "communicate", "wait"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Action::Work work) {
  constexpr std::array<std::string_view, 8> kNames = {"none",   "forward", "backward", "input gradients", "weight gradients",
                                                      "update", "encode",  "decode"};
  return kNames[static_cast<std::size_t>(work)];
}

std::string_view name_of(Action::Exchange exchange) {
  constexpr std::array<std::string_view, 12> kNames = {"allreduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all",
                                                       "barrier",   "send",           "receive",    "pull",      "push",   "none"};
  return kNames[static_cast<std::size_t>(exchange)];
}

std::string_view name_of(Action::Axis axis) {
  constexpr std::array<std::string_view, 4> kNames = {"data", "pipeline", "tensor", "server"};
  return kNames[static_cast<std::size_t>(axis)];
}

std::string_view name_of(Action::Lane lane) {
  constexpr std::array<std::string_view, 5> kNames = {"compute", "exchange", "gather", "send", "receive"};
  return kNames[static_cast<std::size_t>(lane)];
}

std::int64_t ProgramModel::Unit::parameters() const {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.elements;
  return sum;
}

std::int64_t ProgramModel::Unit::private_parameters() const {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.is_private ? tensor.elements : 0;
  return sum;
}

std::int64_t ProgramModel::parameters() const {
  std::int64_t sum = 0;
  for (const Unit& unit : units) sum += unit.parameters();
  return sum;
}

void check(const Program& program, const ProgramModel& model) {
  const auto units = static_cast<int>(model.units.size());
  for (int i = 0; i < static_cast<int>(program.size()); ++i) {
    const Action& action = program[static_cast<std::size_t>(i)];
    for (const int before : action.after)
      if (before < 0 || before >= i)
        throw InternalError(fmt::format("action {} of a program waits for {}, which is not an earlier action", i, before));
    if (action.first < 0 || action.first > action.last || action.last > units)
      throw InternalError(
          fmt::format("action {} of a program is of units {} to {}, but the model has {}", i, action.first, action.last, units));
    if ((action.kind == Action::Kind::compute) != (action.work != Action::Work::none) ||
        (action.kind == Action::Kind::communicate) != (action.exchange != Action::Exchange::none))
      throw InternalError(fmt::format("action {} of a program is to {}, and names work '{}' and exchange '{}'", i, name_of(action.kind),
                                      name_of(action.work), name_of(action.exchange)));
  }
}

std::string to_text(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& action = program[i];
    std::string line = fmt::format("{:>4} {:8} ", i, name_of(action.lane));
    if (action.kind == Action::Kind::wait) line += "wait";
    if (action.kind == Action::Kind::communicate) {
      line += fmt::format("{} {} of {} B along {}", name_of(action.exchange), action.elements, action.element_bytes, name_of(action.axis));
      if (action.exchange == Action::Exchange::send || action.exchange == Action::Exchange::receive)
        line += fmt::format(", rank {} tag {}", action.peer, action.tag);
    }
    if (action.kind == Action::Kind::compute) {
      line += name_of(action.work);
      if (action.elements > 0) line += fmt::format(" {}", action.elements);
      else line += fmt::format(" units {}-{}, micro-batch {}", action.first, action.last - 1, action.micro_batch);
    }
    if (!action.after.empty()) line += fmt::format("  after {}", fmt::join(action.after, ", "));
    text += line + "\n";
  }
  return text;
}

}  // namespace paceline::schedule
