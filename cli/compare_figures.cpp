// The figures of a comparison's report.
#include <fmt/format.h>

#include <algorithm>

#include "compare_report.h"
#include "paceline/observe/formatting.h"

namespace paceline::cli {
namespace {

using train::Outcome;

std::string panel_title(const std::string& clock, std::int64_t workers) {
  return observe::plural(workers, "worker") + (clock.empty() ? "" : ", " + clock);
}

/// A section of a long series, so that single values can be seen.
observe::Series window(const std::string& name, const std::vector<double>& values, std::size_t begin, std::size_t most, bool dashed) {
  observe::Series series{.name = name, .x = {}, .y = {}, .dashed = dashed};
  const std::size_t end = std::min(values.size(), begin + most);
  for (std::size_t i = begin; i < end; ++i) series.x.push_back(static_cast<double>(i + 1)), series.y.push_back(values[i]);
  return series;
}

/// A series that is too long for a figure: means over stretches of equally many values.
observe::Series whole(const std::string& name, const std::vector<double>& values, bool dashed) {
  constexpr std::size_t kStretches = 200;
  observe::Series series{.name = name, .x = {}, .y = {}, .dashed = dashed};
  for (std::size_t begin = 0, end; begin < values.size(); begin = end) {
    const std::size_t stretch = begin * kStretches / values.size();
    double sum = 0;
    for (end = begin; end < values.size() && end * kStretches / values.size() == stretch; ++end) sum += values[end];
    series.x.push_back(static_cast<double>(end)), series.y.push_back(sum / static_cast<double>(end - begin));
  }
  return series;
}

}  // namespace

std::string CompareReport::figure_of(const observe::Axis& x, Curve along, const observe::Axis& y, Curve height) const {
  observe::Figure figure{.title = title_, .subtitle = setting_ + "; the first seed", .panels = {}};
  for (const auto& [clock, workers] : panels()) {
    observe::Panel panel{.title = panel_title(clock, workers), .x = x, .y = y, .series = {}};
    for (const Group& group : groups_)
      if (group.clock == clock && (group.workers == workers || group.alone())) {
        const Outcome& outcome = *group.seeds.front();
        panel.series.push_back({.name = group.algorithm, .x = outcome.*along, .y = outcome.*height});
      }
    figure.panels.push_back(std::move(panel));
  }
  return observe::to_svg(figure);
}

std::string CompareReport::staleness_figure() const {
  observe::Figure figure{.title = "staleness", .subtitle = "share of the gradients; the first seed", .panels = {}};
  for (const auto& [clock, workers] : panels()) {
    observe::Panel panel{.title = panel_title(clock, workers),
                         .x = {.label = "updates between a pull and its push"},
                         .y = {.label = "of the gradients", .unit = observe::Axis::Unit::percent, .least = 0},
                         .series = {}};
    for (const Group& group : groups_) {
      if (group.workers != workers || group.clock != clock || group.alone()) continue;
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
  observe::Figure figure{.title = fmt::format("{}, {}: what the predictors predicted", outcome.contestant.algorithm,
                                              panel_title(outcome.contestant.clock, outcome.contestant.workers)),
                         .subtitle = "",
                         .panels = {}};
  const auto panel = [&](const char* what, const std::vector<double>& predicted, const std::vector<double>& actual, std::size_t begin) {
    figure.panels.push_back(
        {.title = what,
         .x = {.label = "report"},
         .y = {.label = what},
         .series = {window("actual", actual, begin, kShown, false), window("predicted", predicted, begin, kShown, true)}});
  };
  figure.panels.push_back({.title = "loss, the whole run",
                           .x = {.label = "report"},
                           .y = {.label = "mean loss"},
                           .series = {whole("actual", outcome.actual_loss, false), whole("predicted", outcome.predicted_loss, true)}});
  const std::size_t half = outcome.actual_loss.size() / 2;
  panel("loss", outcome.predicted_loss, outcome.actual_loss, half);
  panel("steps", outcome.predicted_steps, outcome.actual_steps, std::min(half, outcome.actual_steps.size()));
  return observe::to_svg(figure);
}

}  // namespace paceline::cli
