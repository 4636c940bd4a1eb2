#include "compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "paceline/base/files.h"
#include "paceline/base/text.h"
#include "paceline/observe/formatting.h"

namespace paceline::cli {
namespace {

using train::Outcome;

std::string json_key(const std::string& statistics) {
  if (statistics == "worker") return "bn";
  if (statistics == "async") return "async_bn";
  return statistics.empty() ? "none" : statistics;
}

nlohmann::ordered_json predictors_json(double predictor_ms, double of_ms) {
  nlohmann::ordered_json share;  // null if there is nothing to divide by
  if (of_ms > 0) share = 100 * predictor_ms / of_ms;
  return {{"predictor_ms", predictor_ms}, {"iteration_ms", of_ms}, {"overhead_percent", share}};
}

/// Whether the best setting lies inside the grid rather than at its edge.
std::string remark_on(const train::Choice& choice) {
  const bool widened = std::ranges::any_of(choice.tried, &train::Tried::added);
  if (!choice.edges.empty()) return widened ? " (at the edge of its widened grid)" : " (at the edge of its grid)";
  return widened ? " (in its widened grid)" : "";
}

nlohmann::ordered_json difference_json(const train::Difference& difference) {
  return {{"mean", difference.mean}, {"standard_error", difference.standard_error}, {"pairs", difference.pairs}};
}

}  // namespace

CompareReport::CompareReport(const train::Recipe& recipe, const std::string& executor, train::Comparison found)
    : recipe_(recipe),
      title_(fmt::format("{} on {}", recipe.model.network, recipe.data.name)),
      setting_(fmt::format("batch {} per worker, {}", recipe.data.batch, observe::plural(recipe.train.epochs, "epoch"))),
      found_(std::move(found)) {
  if (served()) setting_ += ", executor " + executor;
  for (const Outcome& outcome : found_.outcomes) {
    const train::Contestant& who = outcome.contestant;
    const auto same = [&](const Group& g) { return g.algorithm == who.algorithm && g.workers == who.workers && g.clock == who.clock; };
    auto group = std::ranges::find_if(groups_, same);
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{who.algorithm, who.clock, who.workers, {}});
    group->seeds.push_back(&outcome);
  }
  if (!clocks()) std::ranges::stable_sort(groups_, {}, &Group::workers);
}

std::string CompareReport::Group::name() const {
  return fmt::format("{} on {}{}", algorithm, observe::plural(workers, "worker"), clock.empty() ? "" : ", " + clock);
}

std::string CompareReport::Group::point() const {
  std::string text;
  for (const std::string& setting : seeds.front()->contestant.point) text += (text.empty() ? "" : " ") + setting;
  return text;
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
  const Group* sgd = baseline(group);
  if (!sgd || sgd == &group) return std::nullopt;
  auto base = spread(*sgd, statistics);
  if (!base) base = spread(*sgd, "worker");  // plain SGD without a server has one error, which is the reference for all others
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

const CompareReport::Group* CompareReport::baseline(const Group& of) const {
  const auto found = std::ranges::find_if(groups_, [&](const Group& group) { return group.alone() && group.clock == of.clock; });
  return found == groups_.end() ? nullptr : &*found;
}

bool CompareReport::has_baseline() const { return std::ranges::any_of(groups_, &Group::alone); }

std::vector<CompareReport::Pairing> CompareReport::pairings() const {
  std::vector<std::string> references = items_of(recipe_.compare.references, ';');
  if (references.empty())
    if (const auto first = std::ranges::find_if(groups_, [](const Group& g) { return !g.alone(); }); first != groups_.end())
      references = {first->algorithm};
  std::vector<Pairing> all;
  for (const std::string& label : references)
    for (const Group& group : groups_) {
      const auto fits = [&](const Group& other) {
        return other.algorithm == label && other.clock == group.clock && (other.workers == group.workers || other.alone());
      };
      const auto reference = std::ranges::find_if(groups_, fits);
      if (reference == groups_.end() || &*reference == &group) continue;
      Pairing made{.group = &group, .reference = &*reference, .error = {}, .seconds = {}};
      const auto difference = [&](const auto& figure) {
        std::vector<std::pair<double, double>> pairs;
        for (const Outcome* one : group.seeds)
          for (const Outcome* other : reference->seeds)
            if (one->contestant.seed == other->contestant.seed) pairs.emplace_back(figure(*one), figure(*other));
        return train::paired_difference(pairs);
      };
      made.error = difference([](const Outcome& o) { return o.final_error; });
      for (const double accuracy : recipe_.compare.accuracies)
        made.seconds.push_back(difference([&](const Outcome& o) { return train::time_to(o, accuracy).value_or(NAN); }));
      all.push_back(std::move(made));
    }
  return all;
}

std::vector<std::pair<std::string, std::int64_t>> CompareReport::panels() const {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for (const Group& group : groups_)
    if (const std::pair key(group.clock, group.workers); !group.alone() && std::ranges::find(all, key) == all.end()) all.push_back(key);
  return all;
}

std::vector<std::string> CompareReport::statistics() const {
  std::vector<std::string> kinds;
  for (const char* kind : {"worker", "async", "recomputed"})
    if (std::ranges::any_of(found_.outcomes, [&](const Outcome& o) {
          return std::ranges::find(o.errors, kind, &std::pair<std::string, double>::first) != o.errors.end();
        }))
      kinds.emplace_back(kind);
  if (kinds.empty()) kinds.emplace_back("");
  return kinds;
}

bool CompareReport::served() const {
  return std::ranges::any_of(found_.outcomes, [](const Outcome& o) { return !o.staleness.empty(); });
}

bool CompareReport::sent() const {
  return std::ranges::any_of(found_.outcomes, [](const Outcome& o) { return o.bytes_per_step > 0; });
}

bool CompareReport::clocks() const { return !recipe_.compare.clocks.empty(); }

nlohmann::ordered_json CompareReport::json() const {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array(), choices = Json::array(), differences = Json::array();
  for (const Outcome& o : found_.outcomes)
    for (const std::string& kind : statistics())
      if (const auto error = o.error_with(kind)) {
        Json row = {{"algorithm", o.contestant.algorithm},
                    {"workers", o.contestant.workers},
                    {"bn", json_key(kind)},
                    {"seed", o.contestant.seed},
                    {"clock", o.contestant.clock},
                    {"chosen", o.contestant.point},
                    {"test_error", *error},
                    {"epochs", o.epochs},
                    {"seconds", o.seconds},
                    {"seconds_are", o.virtual_clock ? "assumed" : "measured"}};
        for (const double accuracy : recipe_.compare.accuracies) {
          const auto time = train::time_to(o, accuracy);
          row["seconds_to"][fmt::format("{:g}", accuracy)] = time ? Json(*time) : Json(nullptr);
        }
        row.update({{"mean_staleness", o.mean_staleness}, {"stragglers", o.stragglers}});
        if (o.virtual_clock) row["assumed"] = predictors_json(o.predictor_ms, o.iteration_ms);
        if (!o.staleness.empty()) row["measured"] = predictors_json(o.loss_predictor_ms + o.step_predictor_ms, o.measured_iteration_ms);
        rows.push_back(std::move(row));
      }
  for (const train::Choice& choice : found_.choices) {
    Json tried = Json::array();
    for (const train::Tried& point : choice.tried)
      tried.push_back({{"settings", point.point}, {"held_out_error", point.error}, {"added", point.added}});
    choices.push_back({{"algorithm", choice.contestant.algorithm},
                       {"workers", choice.contestant.workers},
                       {"clock", choice.contestant.clock},
                       {"chosen", choice.contestant.point},
                       {"at_the_edge", choice.edges},
                       {"tried", tried}});
  }
  for (const Pairing& pairing : pairings()) {
    Json row = {{"algorithm", pairing.group->algorithm},
                {"workers", pairing.group->workers},
                {"clock", pairing.group->clock},
                {"reference", pairing.reference->algorithm},
                {"test_error", difference_json(pairing.error)}};
    for (std::size_t i = 0; i < pairing.seconds.size(); ++i)
      row["seconds_to"][fmt::format("{:g}", recipe_.compare.accuracies[i])] = difference_json(pairing.seconds[i]);
    differences.push_back(std::move(row));
  }
  return {{"recipe", title_}, {"setting", setting_}, {"rows", rows}, {"choices", choices}, {"differences", differences}};
}

std::string CompareReport::text() const {
  using observe::Align;
  using observe::fit;
  const std::vector<std::string> kinds = statistics();
  std::string text = fmt::format("  {}: {}\n\n  ", title_, setting_);
  if (clocks()) text += fit("clock", 14, Align::left);
  text += fmt::format("workers  {}", fit("algorithm", 28, Align::left));
  for (const std::string& kind : kinds) text += fit(kind.empty() ? "error %" : statistics_heading(kind) + " error %", 22, Align::right);
  if (served()) text += fit("staleness", 12, Align::right);
  if (sent()) text += fit("kB a step", 12, Align::right);
  text += fit("seconds", 10, Align::right) + "\n";
  for (const Group& group : groups_) {
    text += "  ";
    if (clocks()) text += fit(group.clock, 14, Align::left);
    text += fmt::format("{:>7}  {}", group.workers, fit(group.algorithm, 28, Align::left));
    for (const std::string& kind : kinds) {
      std::string error = error_cell(group, kind);
      if (const auto against = against_sgd(group, kind)) error += fmt::format(" ({:+.1f}%)", *against);
      text += fit(error, 22, Align::right);
    }
    if (served()) text += fit(number_cell(mean(group, &Outcome::mean_staleness), 2), 12, Align::right);
    if (sent()) text += fit(sent_cell(group), 12, Align::right);
    text += fit(number_cell(mean(group, &Outcome::seconds), 1), 10, Align::right) + "\n";
  }
  if (!found_.choices.empty()) text += fmt::format("\n  chosen on {} held-out training samples:\n", show_count(recipe_.compare.held_out));
  for (const train::Choice& choice : found_.choices)
    for (const Group& group : groups_)
      if (group.algorithm == choice.contestant.algorithm && group.workers == choice.contestant.workers &&
          group.clock == choice.contestant.clock)
        text += fmt::format("    {}: {}{}\n", group.name(), group.point(), remark_on(choice));
  std::string pairs;
  for (const Pairing& pairing : pairings())
    if (pairing.error.pairs > 1)
      pairs += fmt::format("    {} against {}: {:+.2f} ± {:.2f} points ({} pairs)\n", pairing.group->name(), pairing.reference->algorithm,
                           pairing.error.mean, pairing.error.standard_error, pairing.error.pairs);
  if (!pairs.empty()) text += "\n  differences seed by seed, with their standard errors:\n" + pairs;
  if (const std::string slow = stragglers(); !slow.empty()) text += fmt::format("\n  {}\n", slow);
  return text + (has_baseline() ? "\n  in brackets: against plain SGD on one worker\n" : "");
}

void CompareReport::write(const std::filesystem::path& folder) const {
  std::filesystem::create_directories(folder);
  std::string page = fmt::format("# {}\n\n{}. Numbers are means over the seeds, with standard deviations where there are several.\n\n{}\n",
                                 title_, setting_, error_table());
  if (const std::string slow = stragglers(); !slow.empty()) page += fmt::format("Rows {}.\n\n", slow);
  const auto section = [&](const char* heading, const std::string& content) {
    if (!content.empty()) page += fmt::format("## {}\n\n{}\n", heading, content);
  };
  section("Differences, seed by seed", difference_table());
  section("Time to reach an accuracy", time_table());
  section("What was chosen on held-out samples", choice_table());
  section("What the predictors cost", cost_table());
  section("Errors of the predictors", predictor_table());
  section("What was measured and what was assumed", measured_and_assumed());
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
