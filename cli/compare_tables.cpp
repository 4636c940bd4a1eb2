// The tables of a comparison's report.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "compare_report.h"
#include "paceline/base/text.h"
#include "paceline/observe/formatting.h"
#include "paceline/train/predictor_scores.h"

namespace paceline::cli {
namespace {

using train::Outcome;

std::string with_error(const train::Difference& difference, int digits) {
  if (difference.pairs == 0) return kNotMeasured;
  const std::string error = std::isnan(difference.standard_error) ? "?" : fmt::format("{:.{}f}", difference.standard_error, digits);
  return fmt::format("{:+.{}f} ± {}", difference.mean, digits, error);
}

/// At least two standard errors away from zero.
std::string verdict(const train::Difference& difference) {
  if (std::isnan(difference.standard_error)) return kNotMeasured;
  if (std::abs(difference.mean) <= 2 * difference.standard_error) return "no difference";
  return difference.mean < 0 ? "better" : "worse";
}

}  // namespace

std::string statistics_heading(const std::string& statistics) {
  if (statistics == "worker") return "BN";
  if (statistics == "async") return "Async-BN";
  if (statistics == "recomputed") return "recomputed BN";
  return statistics;
}

std::string number_cell(double number, int digits) { return std::isnan(number) ? kNotMeasured : fmt::format("{:.{}f}", number, digits); }

std::string CompareReport::error_cell(const Group& group, const std::string& kind) const {
  const std::optional<Spread> found = spread(group, kind);
  if (!found) return kNotMeasured;
  if (std::isnan(found->mean)) return "diverged";
  std::string text = fmt::format("{:.2f}", found->mean);
  if (group.seeds.size() > 1) text += fmt::format(" ± {:.2f}", found->deviation);
  return text;
}

/// Workers that share the server's memory send nothing to count.
std::string CompareReport::sent_cell(const Group& group) {
  const double bytes = mean(group, &Outcome::bytes_per_step);
  return bytes == 0 ? kNotMeasured : number_cell(bytes / 1e3, 1);
}

std::string CompareReport::table_head(const std::vector<std::string>& names) const {
  std::string text = clocks() ? "| clock | workers | algorithm |" : "| workers | algorithm |",
              rule = clocks() ? "|---|---|---|" : "|---|---|";
  for (const std::string& name : names) text += fmt::format(" {} |", name), rule += "---|";
  return text + "\n" + rule + "\n";
}

std::string CompareReport::first_cells(const Group& group) const {
  return fmt::format("|{} {} | {} |", clocks() ? fmt::format(" {} |", group.clock) : "", group.workers, group.algorithm);
}

std::string CompareReport::error_table() const {
  const std::vector<std::string> kinds = statistics();
  std::vector<std::string> names;
  for (const std::string& kind : kinds) {
    names.push_back(fmt::format("{}error %", kind.empty() ? "" : statistics_heading(kind) + ", "));
    if (has_baseline()) names.emplace_back("against SGD, %");
  }
  if (!found_.choices.empty()) names.emplace_back("chosen");
  if (served()) names.emplace_back("mean staleness");
  if (sent()) names.emplace_back("kB sent per step");
  names.insert(names.end(), {"seconds are", "seconds"});
  std::string text = table_head(names);
  for (const Group& group : groups_) {
    text += first_cells(group);
    for (const std::string& kind : kinds) {
      const std::optional<double> against = against_sgd(group, kind);
      text += fmt::format(" {} |", error_cell(group, kind));
      if (has_baseline())
        text += fmt::format(" {} |", baseline(group) == &group ? "baseline" : against ? fmt::format("{:+.2f}", *against) : kNotMeasured);
    }
    if (!found_.choices.empty()) text += fmt::format(" {} |", group.point());
    if (served()) text += fmt::format(" {} |", number_cell(mean(group, &Outcome::mean_staleness), 2));
    if (sent()) text += fmt::format(" {} |", sent_cell(group));
    text += fmt::format(" {} | {} |\n", group.seeds.front()->virtual_clock ? "assumed" : "measured",
                        number_cell(mean(group, &Outcome::seconds), 1));
  }
  return text;
}

std::string CompareReport::choice_table() const {
  if (found_.choices.empty()) return "";
  std::string text = table_head({"settings", "held-out error %", ""});
  for (const train::Choice& choice : found_.choices) {
    const train::Contestant& who = choice.contestant;
    for (const train::Tried& tried : choice.tried) {
      std::string settings, remark;
      for (const std::string& setting : tried.point) settings += (settings.empty() ? "" : " ") + setting;
      if (tried.point == who.point) remark = choice.all_diverged ? "all diverged; the first was taken" : "chosen";
      if (tried.point == who.point && !choice.edges.empty()) remark += fmt::format(", at the edge of {}", fmt::join(choice.edges, " and "));
      if (tried.added) remark += remark.empty() ? "added" : ", added";
      text += fmt::format("|{} {} | {} | {} | {} | {} |\n", clocks() ? fmt::format(" {} |", who.clock) : "", who.workers, who.algorithm,
                          settings, std::isnan(tried.error) ? "diverged" : fmt::format("{:.2f}", tried.error), remark);
    }
  }
  text += fmt::format(
      "\nMeasured on the last {} training samples, which these runs did not train on; seeds {}. The final runs train on all samples. The "
      "test set was not used to choose.\n",
      show_count(recipe_.compare.held_out), fmt::join(recipe_.compare.tuning_seeds, ", "));
  if (recipe_.compare.widen > 0)
    text +=
        fmt::format("Where the best point was at the edge of its grid, values beyond it were added by the grid's own ratio, at most {}.\n",
                    recipe_.compare.widen);
  return text;
}

std::string CompareReport::difference_table() const {
  std::vector<std::string> names = {"against", "pairs", "test error, points", "by two standard errors"};
  for (const double accuracy : recipe_.compare.accuracies) names.push_back(fmt::format("seconds to {:g}%", accuracy));
  std::string rows;
  for (const Pairing& pairing : pairings()) {
    rows += fmt::format("{} {} | {} | {} | {} |", first_cells(*pairing.group), pairing.reference->algorithm, pairing.error.pairs,
                        with_error(pairing.error, 2), verdict(pairing.error));
    for (const train::Difference& seconds : pairing.seconds) rows += fmt::format(" {} |", with_error(seconds, 1));
    rows += "\n";
  }
  if (rows.empty()) return "";
  return table_head(names) + rows +
         "\nMeans of the differences between runs of the same seed, and their standard errors; below 0 is better.\n";
}

std::string CompareReport::time_table() const {
  if (recipe_.compare.accuracies.empty()) return "";
  std::vector<std::string> names = {"seconds are"};
  for (const double accuracy : recipe_.compare.accuracies) names.push_back(fmt::format("seconds to {:g}%", accuracy));
  std::string text = table_head(names);
  for (const Group& group : groups_) {
    text += fmt::format("{} {} |", first_cells(group), group.seeds.front()->virtual_clock ? "assumed" : "measured");
    for (const double accuracy : recipe_.compare.accuracies) {
      double sum = 0, count = 0;
      for (const Outcome* seed : group.seeds)
        if (const auto time = train::time_to(*seed, accuracy)) sum += *time, ++count;
      text += count == 0 ? " not reached |" : fmt::format(" {:.1f} ({:g} of {} runs) |", sum / count, count, group.seeds.size());
    }
    text += "\n";
  }
  return text + fmt::format("\nUp to the first evaluation on the test set that reached it, {}.\n",
                            recipe_.train.evaluate_every > 0 ? fmt::format("one every {:g} epochs", recipe_.train.evaluate_every)
                                                             : std::string("made once, at the end"));
}

std::string CompareReport::stragglers() const {
  std::vector<std::pair<std::string, std::vector<std::string>>> kinds;  // what was slow, and in which rows
  std::vector<std::string> without;
  for (const Group& group : groups_) {
    const std::string& slow = group.seeds.front()->stragglers;
    auto kind = std::ranges::find(kinds, slow, [](const auto& k) { return k.first; });
    if (!slow.empty() && kind == kinds.end()) kind = kinds.insert(kinds.end(), {slow, {}});
    (slow.empty() ? without : kind->second).push_back(group.name());
  }
  std::string text;
  for (const auto& [slow, rows] : kinds)
    text += fmt::format("{}with stragglers ({}): {}", text.empty() ? "" : "; ", slow, fmt::join(rows, "; "));
  if (!text.empty() && !without.empty()) text += fmt::format("; without: {}", fmt::join(without, "; "));
  return text;
}

std::string CompareReport::cost_table() const {
  std::string rows;
  const auto share = [](double of, double whole) { return whole > 0 ? fmt::format("{:.2f}", 100 * of / whole) : kNotMeasured; };
  for (const Group& group : groups_) {
    const double loss_predictor = mean(group, &Outcome::loss_predictor_ms), step_predictor = mean(group, &Outcome::step_predictor_ms);
    if (!(loss_predictor > 0)) continue;
    const bool assumed = group.seeds.front()->virtual_clock;
    const double own = mean(group, &Outcome::measured_iteration_ms);
    rows += fmt::format("{} {:.3f} | {:.3f} | {:.2f} | {} |", first_cells(group), loss_predictor, step_predictor, own,
                        share(loss_predictor + step_predictor, own));
    const double iteration = mean(group, &Outcome::iteration_ms), predictors = mean(group, &Outcome::predictor_ms);
    rows += assumed ? fmt::format(" {:.2f} | {:.3f} | {} |\n", iteration, predictors, share(predictors, iteration)) : " - | - | - |\n";
  }
  if (rows.empty()) return "";
  return table_head({"loss predictor, ms measured", "step predictor, ms measured", "iteration, ms measured", "overhead %, measured",
                     "iteration, ms assumed", "predictors, ms assumed", "overhead %, assumed"}) +
         rows;
}

std::string CompareReport::predictor_table() const {
  std::string rows;
  for (const Group& group : groups_)
    for (const train::PredictorScore& score : train::score_predictors(*group.seeds.front()))
      rows += fmt::format("{} {} | {} | {} | {} |\n", first_cells(group), score.predictor, number_cell(score.loss, 4),
                          number_cell(score.sum, 4), number_cell(score.steps, 3));
  if (rows.empty()) return "";
  return table_head({"predictor", "next loss", "losses of k reports", "steps"}) + rows +
         "\nRoot mean squared errors of the first seed, without the first tenth of the run. `own` is what the run predicted "
         "(ps.predictor); the others are the\nprevious value (`last`), an exponential mean (`ema`), the mean so far (`constant`), the "
         "run's own predictions in random order (`shuffled`), and the mean\nof 16 values on both sides, which needs the future "
         "(`oracle`).\n";
}

std::string CompareReport::measured_and_assumed() const {
  const auto by_clock = [](const Outcome& o) { return o.virtual_clock; };
  const bool any = std::ranges::any_of(found_.outcomes, by_clock), all = std::ranges::all_of(found_.outcomes, by_clock);
  const bool predicts = std::ranges::any_of(found_.outcomes, [](const Outcome& o) { return o.loss_predictor_ms > 0; });
  std::string text = "- Measured: errors, losses";
  if (sent()) text += ", bytes";
  if (predicts) text += ", the times of predictors and minibatches on this machine";
  if (!all) text += ", the seconds of rows that say so";
  text += ".\n";
  if (any)
    text += fmt::format(
        "- Assumed: the virtual clock, and with it seconds, staleness and who comes first. [timing] says: {} with a mean of {:g} ms to "
        "compute, {:g} MB/s and {:g} ms per message{}.\n",
        recipe_.timing.distribution, recipe_.timing.compute_ms, recipe_.timing.bandwidth_mb_per_s, recipe_.timing.latency_ms,
        clocks() ? "; compare.clocks: " + std::string(trimmed(recipe_.compare.clocks)) : "");
  if (any && has_baseline())
    text += "- Plain SGD on one worker holds the parameters itself, so the virtual clock charges it no messages.\n";
  return text;
}

}  // namespace paceline::cli
