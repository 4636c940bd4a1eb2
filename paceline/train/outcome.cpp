#include "paceline/train/outcome.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/text.h"
#include "paceline/train/recipe.h"

namespace paceline::train {
namespace {

namespace fs = std::filesystem;

/// A recipe without file locations, which may change when a comparison is continued. Keys unknown to the version that wrote it have their
/// defaults.
std::string what_decides(const std::string& text, const fs::path& folder) {
  Recipe recipe;
  Config config = recipe.config();
  config.load_text(text, (folder / "recipe.toml").string());
  recipe.data.root.clear(), recipe.train.runs.clear(), recipe.train.device.clear();
  return config.toml();
}

/// What a finished run has recorded; empty if it is not finished.
nlohmann::json finished_summary(const fs::path& folder) {
  std::error_code ignored;
  const nlohmann::json nothing(nlohmann::json::value_t::discarded);
  if (!fs::exists(folder / "summary.json", ignored)) return nothing;
  auto summary = nlohmann::json::parse(read_file(folder / "summary.json"), nullptr, false);
  return summary.contains("stopped") ? nothing : summary;
}

void read_evaluation(const nlohmann::json& event, Outcome& outcome) {
  outcome.epoch.push_back(event.at("epoch").get<double>());
  outcome.error.push_back(100 * (1 - event.at("test_accuracy").get<double>()));
  outcome.time.push_back(event.at("training_seconds").is_number() ? event.at("training_seconds").get<double>() : NAN);
}

/// Losses of single steps are noisy, so the figures show means over stretches of equally many steps.
void read_steps(const std::vector<nlohmann::json>& steps, Outcome& outcome) {
  constexpr std::size_t kStretches = 50;
  double samples = 0, bytes = 0, loss = 0, weight = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto number = [&](const char* key) {
      const auto found = steps[i].find(key);
      return found != steps[i].end() && found->is_number() ? found->get<double>() : NAN;
    };
    samples += number("samples"), bytes += number("bytes_sent");
    loss += number("loss") * number("samples"), weight += number("samples");
    if ((i + 1) * kStretches / steps.size() == i * kStretches / steps.size()) continue;  // inside a stretch
    outcome.loss.push_back(loss / weight), outcome.samples.push_back(samples), outcome.megabytes.push_back(bytes / 1e6);
    loss = weight = 0;
  }
}

void read_metrics(const fs::path& metrics, Outcome& outcome) {
  std::ifstream file(metrics);
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_discarded()) continue;
    if (event.value("event", "") == "evaluation") read_evaluation(event, outcome);
    if (event.value("event", "") == "step") steps.push_back(std::move(event));
  }
  read_steps(steps, outcome);
}

double cell_number(const std::string& text, const fs::path& csv, std::int64_t line, const std::string& column) {
  const std::string_view digits = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw DataError(csv.string(),
                    fmt::format("line {}: {} is '{}', not a number; remove the run's folder to train it again", line, column, digits));
  return value;
}

/// Columns by their headings; a missing one stays empty. Runs without predictors have no such file.
void read_predictions(const fs::path& csv, Outcome& outcome) {
  std::ifstream file(csv);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> heading = split(trimmed(line), ',');
  const std::pair<const char*, std::vector<double>*> columns[] = {{"predicted_loss", &outcome.predicted_loss},
                                                                  {"actual_loss", &outcome.actual_loss},
                                                                  {"predicted_steps", &outcome.predicted_steps},
                                                                  {"actual_steps", &outcome.actual_steps},
                                                                  {"worker", &outcome.reporter},
                                                                  {"steps_ahead", &outcome.steps_ahead},
                                                                  {"delay_loss", &outcome.delay_loss},
                                                                  {"scale", &outcome.scale}};
  for (std::int64_t number = 2; std::getline(file, line); ++number) {
    const std::vector<std::string> cells = split(trimmed(line), ',');
    if (cells.size() != heading.size())
      throw DataError(csv.string(), fmt::format("line {}: {} values for the {} names of line 1; remove the run's folder to train it again",
                                                number, cells.size(), heading.size()));
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (const auto column = std::ranges::find(columns, heading[i], [](const auto& c) { return std::string(c.first); });
          column != std::end(columns))
        column->second->push_back(cell_number(cells[i], csv, number, heading[i]));
  }
}

}  // namespace

bool Contestant::alone() const { return algorithm == kSgd || strategies::is_alone(algorithm); }

std::string Contestant::folder() const {
  std::string name = algorithm;
  if (!clock.empty()) name += "-" + clock;
  name += fmt::format("-{}w", workers);
  if (tuning) name += "-held_out";
  for (const std::string& setting : point) name += "-" + setting;
  name += fmt::format("-seed{}", seed);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  return name;
}

std::optional<double> Outcome::error_with(const std::string& statistics) const {
  if (!diverged.empty()) return NAN;
  const auto with = [&](const std::string& kind) { return std::ranges::find(errors, kind, &std::pair<std::string, double>::first); };
  auto found = with(statistics);
  if (found == errors.end() && statistics == "worker") found = with("");
  return found != errors.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<Outcome> read_outcome(const Contestant& contestant, const fs::path& folder, const std::string& recipe_text) {
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !fs::is_empty(folder, ignored) && !fs::exists(folder / "recipe.toml", ignored))
    throw ConfigError(fmt::format("{} is not a run of a comparison; use another --folder", folder.string()));
  const nlohmann::json summary = finished_summary(folder);
  if (summary.is_discarded()) return std::nullopt;
  if (what_decides(read_file(folder / "recipe.toml"), folder) != what_decides(recipe_text, folder))
    throw ConfigError(fmt::format("{} holds a finished run of another recipe; use another --folder, or remove it", folder.string()));
  Outcome outcome;
  outcome.contestant = contestant;
  if (summary.contains("diverged")) {
    outcome.diverged = summary.at("diverged").get<std::string>();
    outcome.errors = {{"", NAN}};
    read_metrics(folder / "metrics.jsonl", outcome);
    return outcome;
  }
  outcome.epochs = summary.at("epochs").get<double>();
  outcome.wall_seconds = summary.at("seconds").get<double>();
  outcome.final_error = 100 * (1 - summary.at("test_accuracy").get<double>());
  outcome.errors = {{"", outcome.final_error}};
  if (const auto views = summary.find("views"); views != summary.end()) {
    outcome.errors.clear();
    for (const auto& [view, found] : views->items()) outcome.errors.emplace_back(view, 100 * (1 - found.at("test_accuracy").get<double>()));
  }
  read_metrics(folder / "metrics.jsonl", outcome);
  read_predictions(folder / "predictions.csv", outcome);
  outcome.seconds = outcome.time.empty() ? outcome.wall_seconds : outcome.time.back();
  if (const auto talk = summary.find("communication"); talk != summary.end())
    outcome.bytes_per_step = talk->at("bytes_per_step").get<double>();
  if (const auto server = summary.find("server"); server != summary.end()) {
    const auto number = [&](const char* key) { return server->at(key).is_number() ? server->at(key).get<double>() : 0.0; };
    outcome.mean_staleness = number("mean_staleness"), outcome.iteration_ms = number("iteration_ms");
    outcome.predictor_ms = number("predictor_ms");
    outcome.loss_predictor_ms = number("loss_predictor_ms"), outcome.step_predictor_ms = number("step_predictor_ms");
    outcome.virtual_clock = server->at("virtual_seconds").is_number();
    // Under a virtual clock one thread computes for all workers, one minibatch after the other.
    outcome.measured_iteration_ms =
        outcome.virtual_clock ? 1e3 * outcome.wall_seconds / std::max(summary.at("steps").get<double>(), 1.0) : outcome.iteration_ms;
    outcome.staleness = server->at("staleness").get<std::vector<std::pair<std::int64_t, std::int64_t>>>();
  }
  return outcome;
}

std::size_t count_finished(const fs::path& runs) {
  std::size_t count = 0;
  for (const auto& item : fs::directory_iterator(runs)) count += !finished_summary(item.path()).is_discarded();
  return count;
}

}  // namespace paceline::train
