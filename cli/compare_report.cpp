#include "compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "paceline/base/files.h"
#include "paceline/observe/text.h"

namespace paceline::cli {
namespace {

using train::Outcome;

/// The columns' headings for the kinds of statistics.
std::string heading(const std::string& statistics) {
  if (statistics == "worker") return "BN";
  if (statistics == "async") return "Async-BN";
  if (statistics == "recomputed") return "recomputed BN";
  return statistics;
}

std::string json_key(const std::string& statistics) {
  if (statistics == "worker") return "bn";
  if (statistics == "async") return "async_bn";
  return statistics.empty() ? "none" : statistics;
}

constexpr const char* kNone = "-";  // where nothing was measured

double overhead(double predictor_ms, double iteration_ms) { return iteration_ms > 0 ? 100 * predictor_ms / iteration_ms : 0; }

std::string cell(double number, int digits) { return std::isnan(number) ? kNone : fmt::format("{:.{}f}", number, digits); }

/// A window of a long series.
observe::Series window(const std::string& name, const std::vector<double>& values, std::size_t begin, std::size_t most, bool dashed) {
  observe::Series series{.name = name, .x = {}, .y = {}, .dashed = dashed};
  const std::size_t end = std::min(values.size(), begin + most);
  for (std::size_t i = begin; i < end; ++i) series.x.push_back(static_cast<double>(i + 1)), series.y.push_back(values[i]);
  return series;
}

}  // namespace

CompareReport::CompareReport(const train::Recipe& recipe, const std::string& executor, std::vector<Outcome> outcomes)
    : title_(fmt::format("{} on {}", recipe.model.network, recipe.data.name)),
      setting_(fmt::format("batch {} a worker, {}", recipe.data.batch, observe::plural(recipe.train.epochs, "epoch"))),
      outcomes_(std::move(outcomes)) {
  if (served()) setting_ += ", executor " + executor;
  for (const Outcome& outcome : outcomes_) {
    const auto same = [&](const Group& g) {
      return g.algorithm == outcome.contestant.algorithm && g.workers == outcome.contestant.workers;
    };
    auto found = std::ranges::find_if(groups_, same);
    if (found == groups_.end()) found = groups_.insert(groups_.end(), {outcome.contestant.algorithm, outcome.contestant.workers, {}});
    found->seeds.push_back(&outcome);
  }
  std::ranges::stable_sort(groups_, {}, &Group::workers);
}

std::optional<CompareReport::Spread> CompareReport::spread(const Group& group, const std::string& statistics) {
  std::vector<double> errors;
  for (const Outcome* seed : group.seeds)
    if (const auto error = seed->error_with(statistics)) errors.push_back(*error);
  if (errors.empty()) return std::nullopt;
  Spread found;
  const auto n = static_cast<double>(errors.size());
  for (const double error : errors) found.mean += error / n;
  for (const double error : errors) found.deviation += std::pow(error - found.mean, 2);
  found.deviation = n > 1 ? std::sqrt(found.deviation / (n - 1)) : 0;
  return found;
}

std::optional<double> CompareReport::against_sgd(const Group& group, const std::string& statistics) const {
  const Group* sgd = baseline();
  if (!sgd || sgd == &group) return std::nullopt;
  auto base = spread(*sgd, statistics);
  if (!base) base = spread(*sgd, "worker");  // plain SGD without a server has one error, against which all others are held
  const auto found = spread(group, statistics);
  if (!base || !found || !(base->mean > 0) || !std::isfinite(found->mean)) return std::nullopt;
  return 100 * (found->mean / base->mean - 1);
}

double CompareReport::mean(const Group& group, double Outcome::*figure) {
  double sum = 0, count = 0;
  for (const Outcome* seed : group.seeds)
    if (seed->diverged.empty()) sum += seed->*figure, ++count;
  return sum / count;
}

const CompareReport::Group* CompareReport::baseline() const {
  const auto found = std::ranges::find_if(groups_, &Group::alone);
  return found == groups_.end() ? nullptr : &*found;
}

std::vector<std::int64_t> CompareReport::worker_counts() const {
  std::vector<std::int64_t> counts;
  for (const Group& group : groups_)
    if (!group.alone() && std::ranges::find(counts, group.workers) == counts.end()) counts.push_back(group.workers);
  return counts;
}

std::vector<std::string> CompareReport::statistics() const {
  std::vector<std::string> kinds;
  for (const char* kind : {"worker", "async", "recomputed"})
    if (std::ranges::any_of(outcomes_, [&](const Outcome& o) {
          return std::ranges::find(o.errors, kind, &std::pair<std::string, double>::first) != o.errors.end();
        }))
      kinds.emplace_back(kind);
  if (kinds.empty()) kinds.emplace_back("");
  return kinds;
}

bool CompareReport::served() const {
  return std::ranges::any_of(outcomes_, [](const Outcome& o) { return !o.staleness.empty(); });
}

bool CompareReport::sent() const {
  return std::ranges::any_of(outcomes_, [](const Outcome& o) { return o.bytes_per_step > 0; });
}

nlohmann::ordered_json CompareReport::json() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Outcome& outcome : outcomes_)
    for (const std::string& kind : statistics())
      if (const auto error = outcome.error_with(kind))
        rows.push_back({{"algorithm", outcome.contestant.algorithm},
                        {"workers", outcome.contestant.workers},
                        {"bn", json_key(kind)},
                        {"seed", outcome.contestant.seed},
                        {"test_error", *error},
                        {"epochs", outcome.epochs},
                        {"seconds", outcome.seconds},
                        {"mean_staleness", outcome.mean_staleness},
                        {"stragglers", outcome.stragglers},
                        {"predictor_ms", outcome.predictor_ms},
                        {"overhead_percent", overhead(outcome.predictor_ms, outcome.iteration_ms)}});
  return {{"recipe", title_}, {"setting", setting_}, {"rows", rows}};
}

std::string CompareReport::error_cell(const Group& group, const std::string& kind) const {
  const std::optional<Spread> found = spread(group, kind);
  if (!found) return kNone;
  if (std::isnan(found->mean)) return "diverged";
  std::string text = fmt::format("{:.2f}", found->mean);
  if (group.seeds.size() > 1) text += fmt::format(" ± {:.2f}", found->deviation);
  return text;
}

/// Workers that share a server's memory send nothing that could be counted.
std::string CompareReport::sent_cell(const Group& group) {
  const double bytes = mean(group, &Outcome::bytes_per_step);
  return bytes == 0 ? kNone : cell(bytes / 1e3, 1);
}

std::string CompareReport::error_table() const {
  const std::vector<std::string> kinds = statistics();
  std::string text = "| workers | algorithm |", rule = "|---|---|";
  for (const std::string& kind : kinds) {
    text += fmt::format(" {}error % |", kind.empty() ? "" : heading(kind) + ", ");
    rule += "---|";
    if (baseline()) text += " against SGD, % |", rule += "---|";
  }
  if (served()) text += " mean staleness |", rule += "---|";
  if (sent()) text += " kB sent a step |", rule += "---|";
  text += " seconds |\n" + rule + "---|\n";
  for (const Group& group : groups_) {
    text += fmt::format("| {} | {} |", group.workers, group.algorithm);
    for (const std::string& kind : kinds) {
      const std::optional<double> against = against_sgd(group, kind);
      text += fmt::format(" {} |", error_cell(group, kind));
      if (baseline()) text += fmt::format(" {} |", baseline() == &group ? "baseline" : against ? fmt::format("{:+.2f}", *against) : kNone);
    }
    if (served()) text += fmt::format(" {} |", cell(mean(group, &Outcome::mean_staleness), 2));
    if (sent()) text += fmt::format(" {} |", sent_cell(group));
    text += fmt::format(" {} |\n", cell(mean(group, &Outcome::seconds), 1));
  }
  return text;
}

std::string CompareReport::stragglers() const {
  std::string with, without;
  for (const Group& group : groups_) {
    const std::string& slow = group.seeds.front()->stragglers;
    std::string& list = slow.empty() ? without : with;
    list += fmt::format("{}{} on {}", list.empty() ? "" : ", ", group.algorithm, observe::plural(group.workers, "worker"));
    if (!slow.empty()) list += fmt::format(" ({})", slow);
  }
  if (with.empty()) return "";
  return fmt::format("with stragglers: {}{}", with, without.empty() ? "" : "; without: " + without);
}

std::string CompareReport::cost_table() const {
  std::string rows;
  for (const Group& group : groups_) {
    const double loss_predictor = mean(group, &Outcome::loss_predictor_ms), iteration = mean(group, &Outcome::iteration_ms);
    if (!(loss_predictor > 0)) continue;
    rows += fmt::format("| {} | {} | {:.3f} | {:.3f} | {:.2f} | {:.2f} |\n", group.workers, group.algorithm, loss_predictor,
                        mean(group, &Outcome::step_predictor_ms), iteration, overhead(mean(group, &Outcome::predictor_ms), iteration));
  }
  return rows.empty() ? ""
                      : "| workers | algorithm | loss predictor, ms measured | step predictor, ms measured | iteration, ms by the run's "
                        "clock | overhead % by the run's clock |\n"
                        "|---|---|---|---|---|---|\n" +
                            rows;
}

std::string CompareReport::text() const {
  using observe::Align;
  using observe::fit;
  const std::vector<std::string> kinds = statistics();
  std::string text = fmt::format("  {}: {}\n\n  workers  {}", title_, setting_, fit("algorithm", 28, Align::left));
  for (const std::string& kind : kinds) text += fit(kind.empty() ? "error %" : heading(kind) + " error %", 22, Align::right);
  if (served()) text += fit("staleness", 12, Align::right);
  if (sent()) text += fit("kB a step", 12, Align::right);
  text += fit("seconds", 10, Align::right) + "\n";
  for (const Group& group : groups_) {
    text += fmt::format("  {:>7}  {}", group.workers, fit(group.algorithm, 28, Align::left));
    for (const std::string& kind : kinds) {
      std::string error = error_cell(group, kind);
      if (const auto against = against_sgd(group, kind)) error += fmt::format(" ({:+.1f}%)", *against);
      text += fit(error, 22, Align::right);
    }
    if (served()) text += fit(cell(mean(group, &Outcome::mean_staleness), 2), 12, Align::right);
    if (sent()) text += fit(sent_cell(group), 12, Align::right);
    text += fit(cell(mean(group, &Outcome::seconds), 1), 10, Align::right) + "\n";
  }
  if (const std::string slow = stragglers(); !slow.empty()) text += fmt::format("\n  {}\n", slow);
  return text + (baseline() ? "\n  in brackets: against plain SGD on one worker\n" : "");
}

std::string CompareReport::figure_of(const observe::Axis& x, Curve along, const observe::Axis& y, Curve height) const {
  observe::Figure figure{.title = title_, .subtitle = setting_ + "; the first seed", .panels = {}};
  for (const std::int64_t workers : worker_counts()) {
    observe::Panel panel{.title = fmt::format("{} workers", workers), .x = x, .y = y, .series = {}};
    for (const Group& group : groups_)
      if (group.workers == workers || group.alone()) {
        const Outcome& outcome = *group.seeds.front();
        panel.series.push_back({.name = group.algorithm, .x = outcome.*along, .y = outcome.*height});
      }
    figure.panels.push_back(std::move(panel));
  }
  return observe::to_svg(figure);
}

std::string CompareReport::staleness_figure() const {
  observe::Figure figure{.title = "staleness", .subtitle = "share of the gradients; the first seed", .panels = {}};
  for (const std::int64_t workers : worker_counts()) {
    observe::Panel panel{.title = fmt::format("{} workers", workers),
                         .x = {.label = "updates between a pull and its push"},
                         .y = {.label = "of the gradients", .unit = observe::Axis::Unit::percent, .least = 0},
                         .series = {}};
    for (const Group& group : groups_) {
      if (group.workers != workers || group.alone()) continue;
      observe::Series series{.name = group.algorithm, .x = {}, .y = {}, .markers = true};
      double all = 0;
      for (const auto& [staleness, count] : group.seeds.front()->staleness) all += static_cast<double>(count);
      for (const auto& [staleness, count] : group.seeds.front()->staleness)
        series.x.push_back(static_cast<double>(staleness)), series.y.push_back(static_cast<double>(count) / all);
      panel.series.push_back(std::move(series));
    }
    figure.panels.push_back(std::move(panel));
  }
  return observe::to_svg(figure);
}

std::string CompareReport::prediction_figure(const Outcome& outcome) const {
  constexpr std::size_t kShown = 200;  // reports
  observe::Figure figure{
      .title = fmt::format("{}, {} workers: what the predictors said", outcome.contestant.algorithm, outcome.contestant.workers),
      .subtitle = "",
      .panels = {}};
  const auto panel = [&](const char* what, const std::vector<double>& predicted, const std::vector<double>& actual, std::size_t begin) {
    figure.panels.push_back(
        {.title = what,
         .x = {.label = "report"},
         .y = {.label = what},
         .series = {window("actual", actual, begin, kShown, false), window("predicted", predicted, begin, kShown, true)}});
  };
  const std::size_t half = outcome.actual_loss.size() / 2;
  panel("loss", outcome.predicted_loss, outcome.actual_loss, half);
  panel("steps", outcome.predicted_steps, outcome.actual_steps, std::min(half, outcome.actual_steps.size()));
  return observe::to_svg(figure);
}

void CompareReport::write(const std::filesystem::path& folder) const {
  std::filesystem::create_directories(folder);
  std::string page = fmt::format(
      "# {}\n\n{}. Numbers are means over the seeds. `seconds` are those of training, by the virtual clock where there is one.\n\n{}\n",
      title_, setting_, error_table());
  if (const std::string slow = stragglers(); !slow.empty()) page += fmt::format("Rows {}.\n\n", slow);
  if (const std::string costs = cost_table(); !costs.empty()) page += "## What the predictors cost\n\n" + costs + "\n";
  const auto picture = [&](const std::string& name, const std::string& svg, const std::string& what) {
    write_atomically(folder / name, svg);
    page += fmt::format("![{}]({})\n\n", what, name);
  };
  const observe::Axis error{.label = "test error, %"}, loss{.label = "training loss", .log = true};
  picture("error.svg", figure_of({.label = "epoch"}, &Outcome::epoch, error, &Outcome::error), "test error by epoch");
  picture("time.svg", figure_of({.label = "seconds of training"}, &Outcome::time, error, &Outcome::error), "test error by time");
  picture("loss.svg", figure_of({.label = "samples"}, &Outcome::samples, loss, &Outcome::loss), "training loss by samples");
  if (sent())
    picture("bytes.svg", figure_of({.label = "MB that a worker sent", .log = true}, &Outcome::megabytes, loss, &Outcome::loss),
            "training loss by bytes on the wire");
  if (served()) picture("staleness.svg", staleness_figure(), "staleness of the gradients");
  for (const Group& group : groups_)
    if (const Outcome& outcome = *group.seeds.front(); !outcome.actual_loss.empty())
      picture("predictions-" + outcome.contestant.folder() + ".svg", prediction_figure(outcome), "predicted and actual losses and steps");
  write_atomically(folder / "report.md", page);
  write_atomically(folder / "rows.json", json().dump(2) + "\n");
}

}  // namespace paceline::cli
