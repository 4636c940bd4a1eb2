#include "paceline/perf/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/base/text.h"

namespace paceline::perf {
namespace {

struct TableColumn {
  std::string_view name;
  std::int64_t MeasuredStep::*field = nullptr;  // nullptr: the seconds, in ms
  bool needed = true;
};
constexpr TableColumn kTableColumns[] = {
    {"# GPUs", &MeasuredStep::gpus},
    {"global batch", &MeasuredStep::global_batch},
    {"micro batch", &MeasuredStep::micro_batch},
    {"hidden size", &MeasuredStep::hidden},
    {"attention heads", &MeasuredStep::heads},
    {"# layers", &MeasuredStep::layers},
    {"sequence length", &MeasuredStep::sequence},
    {"vocabulary", &MeasuredStep::vocabulary, false},
    {"tensor parallelism", &MeasuredStep::tensor},
    {"data parallelism", &MeasuredStep::data},
    {"pipeline parallelism", &MeasuredStep::pipeline},
    {"iteration time (ms)", nullptr},
};
constexpr std::int64_t kMost = 1 << 24;  // the limit of any count, so that no product overflows 64 bits

class TableReader {
 public:
  explicit TableReader(const std::string& source) : source_(source) {}

  void read_names(const std::string& line) {
    const std::vector<std::string> names = split(line, ',');
    for (const TableColumn& column : kTableColumns) {
      const auto found = std::ranges::find_if(names, [&](const std::string& name) { return trimmed(name) == column.name; });
      places_.push_back(found == names.end() ? -1 : found - names.begin());
      if (found == names.end() && column.needed)
        refuse(1, fmt::format("no column '{}'; the names are those of vTrain's tables (docs/planner.md)", column.name));
    }
    width_ = names.size();
  }

  MeasuredStep read(const std::string& text, std::int64_t line) const {
    const std::vector<std::string> values = split(text, ',');
    if (values.size() != width_) refuse(line, fmt::format("{} values for {} names", values.size(), width_));
    MeasuredStep step;
    step.line = line;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] < 0) continue;
      const double value = number(values[static_cast<std::size_t>(places_[i])], line, kTableColumns[i]);
      if (kTableColumns[i].field == nullptr) step.seconds = value / 1e3;
      else step.*kTableColumns[i].field = static_cast<std::int64_t>(value);
    }
    check(step);
    return step;
  }

 private:
  [[noreturn]] void refuse(std::int64_t line, const std::string& why) const {
    throw DataError(source_, fmt::format("line {}: {}", line, why));
  }

  double number(std::string_view text, std::int64_t line, const TableColumn& column) const {
    text = trimmed(text);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = column.field == nullptr || (value == std::floor(value) && value <= static_cast<double>(kMost));
    if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || !std::isfinite(value) || !whole)
      refuse(line,
             fmt::format("{} is '{}', but must be a {} above 0", column.name, text, column.field != nullptr ? "whole number" : "number"));
    return value;
  }

  void check(const MeasuredStep& step) const {
    const std::int64_t line = step.line;
    if (step.tensor * step.data * step.pipeline != step.gpus)
      refuse(line, fmt::format("tensor {} × data {} × pipeline {} are not {} GPUs", step.tensor, step.data, step.pipeline, step.gpus));
    if (step.global_batch % (step.micro_batch * step.data) != 0)
      refuse(line, fmt::format("a global batch of {} does not divide into micro-batches of {} on {} replicas", step.global_batch,
                               step.micro_batch, step.data));
    if (step.layers % step.pipeline != 0) refuse(line, fmt::format("{} layers do not divide into {} stages", step.layers, step.pipeline));
    if (step.hidden % step.heads != 0)
      refuse(line, fmt::format("a hidden size of {} does not divide into {} heads", step.hidden, step.heads));
    if (step.heads % step.tensor != 0) refuse(line, fmt::format("{} heads do not divide among {} ranks", step.heads, step.tensor));
  }

  const std::string& source_;
  std::vector<std::ptrdiff_t> places_;  // by column; −1: missing
  std::size_t width_ = 0;
};

}  // namespace

std::string MeasuredStep::title() const {
  return fmt::format("hidden {}, {} layers, tensor {} × data {} × pipeline {}, {} micro-batches of {}", hidden, layers, tensor, data,
                     pipeline, micro_batches(), micro_batch);
}

std::vector<MeasuredStep> read_step_table(const std::string& text, const std::string& source) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::vector<std::string> lines = split(text, '\n');
  if (lines.front().starts_with(kByteOrderMark)) lines.front().erase(0, kByteOrderMark.size());
  TableReader reader(source);
  reader.read_names(lines.front());
  std::vector<MeasuredStep> steps;
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (!trimmed(lines[i]).empty()) steps.push_back(reader.read(lines[i], static_cast<std::int64_t>(i) + 1));
  if (steps.empty()) throw DataError(source, "has column names but no steps");
  return steps;
}

}  // namespace paceline::perf
