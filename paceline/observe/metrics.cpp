#include "paceline/observe/metrics.h"

#include <concepts>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "paceline/base/files.h"

namespace paceline::observe {
namespace {

using Json = nlohmann::ordered_json;

Json line_of(const StepDone& e) {
  return {{"event", "step"},
          {"step", e.step},
          {"epoch", e.epoch},
          {"epoch_step", e.epoch_step},
          {"epoch_steps", e.epoch_steps},
          {"loss", e.loss},
          {"accuracy", e.accuracy},
          {"rate", e.rate},
          {"samples", e.samples},
          {"seconds", seconds(e.duration)},
          {"communication_share", e.communication_share},
          {"hidden_share", e.hidden_share},
          {"bytes_sent", e.bytes_sent}};
}

Json line_of(const EpochDone& e) {
  return {{"event", "epoch"},           {"epoch", e.epoch},
          {"train_loss", e.train_loss}, {"train_accuracy", e.train_accuracy},
          {"samples", e.samples},       {"seconds", seconds(e.duration)}};
}

Json line_of(const Evaluated& e) {
  Json line = {
      {"event", "evaluation"},           {"step", e.step}, {"epoch", e.epoch}, {"test_loss", e.loss}, {"test_accuracy", e.accuracy},
      {"training_seconds", e.training_s}};
  for (const Measured& metric : e.metrics) line["test_metrics"][metric.name] = metric.value;
  return line;
}

Json line_of(const EvaluatedView& e) {
  return {{"event", "view"}, {"step", e.step}, {"epoch", e.epoch}, {"view", e.view}, {"test_loss", e.loss}, {"test_accuracy", e.accuracy}};
}

Json line_of(const CheckpointWritten& e) {
  return {{"event", "checkpoint"}, {"step", e.step}, {"file", e.file}, {"bytes", e.bytes}, {"seconds", seconds(e.duration)}};
}

/// Calls `take` with every complete line; returns whether all lines are complete.
bool for_each_line(const std::filesystem::path& file, const std::function<void(const std::string&, const Json&)>& take) {
  bool whole = true;
  if (!std::filesystem::is_regular_file(file)) return whole;
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const Json row = Json::parse(line, nullptr, false);
    if (row.is_object()) take(line, row);
    whole = whole && row.is_object() && !in.eof();  // a kill may have truncated the last one
  }
  return whole;
}

double number(const Json& row, const char* key) {
  const auto found = row.find(key);  // missing: an earlier version did not write it; null: NaN
  return found == row.end() || found->is_null() ? kUnknown : found->get<double>();
}

}  // namespace

void MetricsLog::keep_those(const std::function<bool(const Json&)>& wanted) {
  out_->flush();
  std::string kept;
  bool all = true;
  const bool whole = for_each_line(file_, [&](const std::string& line, const Json& row) {
    if (wanted(row)) kept += line + "\n";
    else all = false;
  });
  if (all && whole) return;
  write_atomically(file_, kept);
  out_.emplace(file_, clock_);
}

void MetricsLog::on(const Event& event) {
  if (const auto* started = std::get_if<RunStarted>(&event)) {
    first_step_ = started->first_step;
    bool later = false;  // a line without a step number belongs to the lines before it
    keep_those([&](const Json& row) { return !(later = row.contains("step") ? row["step"] > first_step_ : later); });
  }
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { line_of(e); }) {
          const Json line = line_of(e);
          if constexpr (std::same_as<decltype(e), const Evaluated&> || std::same_as<decltype(e), const EvaluatedView&>)
            if (e.step == first_step_)
              keep_those([&](const Json& row) {
                return row.value("event", "") != line.value("event", "") || row["step"] != e.step ||
                       row.value("view", "") != line.value("view", "");
              });
          // A path may hold any bytes; JSON may not.
          out_->write(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
        }
      },
      event);
  if (!std::holds_alternative<StepDone>(event) && !std::holds_alternative<Span>(event)) out_->flush();
}

std::vector<Event> read_events(const std::filesystem::path& file) {
  std::vector<Event> events;
  for_each_line(file, [&](const std::string&, const Json& row) {
    const std::string event = row.value("event", "");
    if (event == "step" && row.contains("epoch_steps")) {
      StepDone done;
      done.step = row.at("step"), done.epoch = row.at("epoch"), done.samples = row.at("samples");
      done.epoch_step = row.at("epoch_step"), done.epoch_steps = row.at("epoch_steps");
      done.loss = number(row, "loss"), done.accuracy = number(row, "accuracy"), done.rate = number(row, "rate");
      events.emplace_back(done);
    }
    if (event == "evaluation") {
      Evaluated done;
      done.step = row.at("step"), done.epoch = row.at("epoch");
      done.loss = number(row, "test_loss"), done.accuracy = number(row, "test_accuracy");
      done.training_s = number(row, "training_seconds");
      events.emplace_back(done);
    }
  });
  return events;
}

}  // namespace paceline::observe
