// Reads predictions.csv, which has a line for every report but the first: line i of those below the heading is report i, counted from 0.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/text.h"
#include "paceline/ps/predictors/factories.h"
#include "paceline/ps/predictors/state_list.h"

namespace paceline::ps {
namespace {

struct Row {
  float loss = NAN, steps = NAN;  // steps: of the others since the worker's last visit; NaN at its first
  int worker = 0;
};

std::vector<Row> read(const std::string& file) {
  if (!std::filesystem::is_regular_file(file))
    throw ConfigError(fmt::format(
        "ps.predictor=recorded: ps.predictor_recording is '{}', which is no file; name predictions.csv of a run of lc_asgd", file));
  std::vector<std::string> lines = split(trimmed(read_file(file)), '\n');
  const std::vector<std::string> heading = split(trimmed(lines.front()), ',');
  const auto column = [&](const char* name) {
    const auto found = std::ranges::find(heading, name);
    if (found == heading.end()) throw DataError(file, fmt::format("has no column {}; name predictions.csv of a run of lc_asgd", name));
    return static_cast<std::size_t>(found - heading.begin());
  };
  const std::size_t loss = column("actual_loss"), steps = column("actual_steps"), worker = column("worker");
  std::vector<Row> rows;
  for (std::size_t line = 1; line < lines.size(); ++line) {
    const std::vector<std::string> cells = split(trimmed(lines[line]), ',');
    const auto number = [&](std::size_t index) {
      float value = 0;
      const std::string cell = index < cells.size() ? cells[index] : "";
      const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      if (code != std::errc() || end != cell.data() + cell.size())
        throw DataError(file, fmt::format("line {}: {} is '{}', not a number; record the run again", line + 1, heading[index], cell));
      return value;
    };
    rows.push_back({.loss = number(loss), .steps = number(steps), .worker = static_cast<int>(number(worker))});
  }
  return rows;
}

class RecordedLosses final : public LossPredictor {
 public:
  explicit RecordedLosses(const std::vector<Row>& rows) {
    for (const Row& row : rows) losses_.push_back(row.loss);
  }

  /// What the recording lacks is as the mean of what it has or, after its end, as this loss.
  LossForecast observe(double loss, std::int64_t steps, bool) override {
    const auto begin = static_cast<std::size_t>(reports_++);
    const auto mean_of = [&](std::size_t count) {
      double sum = 0, finite = 0;
      for (std::size_t i = begin; i < std::min(begin + count, losses_.size()); ++i)
        if (std::isfinite(losses_[i])) sum += losses_[i], ++finite;
      return finite > 0 ? sum / finite : loss;
    };
    const double count = static_cast<double>(steps);
    return {.sum = steps > 0 ? count * mean_of(static_cast<std::size_t>(steps)) : 0, .derivative = 0, .next = mean_of(1)};
  }

  std::vector<float> save() const override { return {reports_}; }
  void load(std::span<const float> state) override { check_length(state, 1, "loss predictor"), reports_ = state[0]; }

 private:
  std::vector<float> losses_;
  float reports_ = 0;  // a float, to be saved
};

class RecordedSteps final : public StepPredictor {
 public:
  explicit RecordedSteps(const std::vector<Row>& rows) {
    for (const Row& row : rows)
      if (std::isfinite(row.steps)) steps_[row.worker].push_back(row.steps);
  }

  double observe(int worker, std::int64_t steps, double, double) override {
    ensure(worker >= 0, "workers are numbered from 0");
    const auto index = static_cast<std::size_t>(worker);
    if (index >= visits_.size()) visits_.resize(index + 1, 0);
    const std::vector<float>& recorded = steps_[worker];
    const auto visit = static_cast<std::size_t>(visits_[index]++);
    return visit < recorded.size() ? recorded[visit] : static_cast<double>(steps);
  }
  void forget(int) override {}  // the recording goes on

  std::vector<float> save() const override { return visits_; }
  void load(std::span<const float> state) override { visits_.assign(state.begin(), state.end()); }

 private:
  std::map<int, std::vector<float>> steps_;  // by worker
  std::vector<float> visits_;                // by worker; floats, to be saved
};

}  // namespace

std::unique_ptr<LossPredictor> make_recorded_losses(const PredictorConfig& config) {
  return std::make_unique<RecordedLosses>(read(config.recording));
}
std::unique_ptr<StepPredictor> make_recorded_steps(const PredictorConfig& config) {
  return std::make_unique<RecordedSteps>(read(config.recording));
}

}  // namespace paceline::ps
