#include "simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "paceline/observe/chart.h"
#include "paceline/observe/formatting.h"

namespace paceline::cli {
namespace {

using Json = nlohmann::ordered_json;
using observe::Panel;
using observe::Series;

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string ms_of(double seconds) { return fmt::format("{:.4g} ms", seconds * 1e3); }
std::string percent_of(double share) { return fmt::format("{:.1f}%", 100 * share); }

/// Shares of a rank's time.
struct Shares {
  double computing = 0, communicating = 0, waiting = 0;
};
Shares shares_of(const sim::Spent& spent) {
  const double sum = std::max(spent.sum(), 1e-300);
  return {spent.computing / sum, spent.communicating / sum, spent.waiting / sum};
}

struct Utilisation {
  Shares mean;
  std::size_t busiest = 0, idlest = 0;  // the ranks that compute the most and the least
};
Utilisation utilisation_of(const std::vector<sim::Spent>& ranks) {
  Utilisation use;
  const double count = static_cast<double>(ranks.size());
  for (const sim::Spent& rank : ranks) {
    const Shares one = shares_of(rank);
    use.mean.computing += one.computing / count, use.mean.communicating += one.communicating / count,
        use.mean.waiting += one.waiting / count;
  }
  const auto computing = [](const sim::Spent& rank) { return rank.computing; };
  use.busiest = static_cast<std::size_t>(std::ranges::max_element(ranks, {}, computing) - ranks.begin());
  use.idlest = static_cast<std::size_t>(std::ranges::min_element(ranks, {}, computing) - ranks.begin());
  return use;
}

double mean_staleness(const std::vector<std::int64_t>& counts) {
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    sum += static_cast<double>(i) * static_cast<double>(counts[i]), count += static_cast<double>(counts[i]);
  return count > 0 ? sum / count : 0;
}

std::string share_bar(double share) { return observe::repeat("█", static_cast<int>(std::lround(40 * std::clamp(share, 0.0, 1.0)))); }

std::string line(const char* name, const std::string& text) { return fmt::format("  {:<20}{}\n", name, text); }
std::string bar_line(const char* name, double share) { return line(name, fmt::format("{:>6}  {}", percent_of(share), share_bar(share))); }

/// Workers that make their steps together are costed as they are, others as visitors of a queue (perf/servers.h).
const char* closed_form_word(const Simulation& simulation) {
  return simulation.replayed.synchronous ? "nothing varies" : "arrivals at random";
}
const char* step_word(const Simulation& simulation) { return simulation.replayed.synchronous ? "step" : "iteration"; }

std::string failures_text(const Simulation& simulation) {
  const sim::Survival& life = *simulation.survival;
  const sim::FailureSettings& settings = *simulation.failing;
  const double rate = simulation.replayed.samples_per_s * life.share();
  std::string text = line("goodput", fmt::format("{} samples/s, {} of the throughput (by Daly's model {})", observe::show_rate(rate),
                                                 percent_of(life.share()), percent_of(simulation.expected_share)));
  text += line("failures", fmt::format("one every {}; checkpoints every {}, each {}; restarts {}",
                                       observe::show_duration(settings.mtbf_s / static_cast<double>(settings.devices)),
                                       observe::show_duration(settings.interval_s), observe::show_duration(settings.checkpoint_s),
                                       observe::show_duration(settings.restart_s)));
  text += line("lost", fmt::format("{} to failures, {} to checkpoints, {} to restarts", percent_of(life.lost_s / life.wall_s),
                                   percent_of(life.checkpoints_s / life.wall_s), percent_of(life.restarts_s / life.wall_s)));
  if (settings.workers > 0) text += line("workers up", percent_of(life.workers_up));
  return text;
}

/// The step time that this share of all steps does not exceed.
Panel distribution_panel(const Simulation& simulation) {
  std::vector<double> steps = simulation.replayed.steps;
  std::ranges::sort(steps);
  Series found{.name = "simulated", .x = {}, .y = {}};
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (const double share : {static_cast<double>(i), static_cast<double>(i + 1)})
      found.x.push_back(steps[i] * 1e3), found.y.push_back(share / static_cast<double>(steps.size()));
  Panel panel{
      .title = fmt::format("How long {} takes", simulation.replayed.synchronous ? "a step" : "an iteration"),
      .x = {.label = fmt::format("{}, ms", step_word(simulation))},
      .y = {.label = fmt::format("share of {}s that took at most this long", step_word(simulation)), .unit = observe::Axis::Unit::percent},
      .series = {std::move(found)}};
  panel.y.least = 0, panel.y.most = 1;
  panel.x.least = 0.8e3 * std::min(steps.front(), simulation.modelled_s > 0 ? simulation.modelled_s : steps.front());
  panel.x.most = 1.1e3 * std::max(steps.back(), simulation.modelled_s);
  if (simulation.modelled_s > 0)
    panel.series.push_back({.name = fmt::format("closed form, {}", closed_form_word(simulation)),
                            .x = {simulation.modelled_s * 1e3, simulation.modelled_s * 1e3},
                            .y = {0, 1},
                            .dashed = true});
  return panel;
}

Panel ranks_panel(const Simulation& simulation) {
  const auto& ranks = simulation.replayed.ranks;
  const Utilisation use = utilisation_of(ranks);
  Panel panel{.title = "Where the ranks' time goes",
              .x = {},
              .y = {.label = "of the time", .unit = observe::Axis::Unit::percent},
              .series = {{.name = "computing", .x = {}, .y = {}},
                         {.name = "communicating", .x = {}, .y = {}},
                         {.name = "waiting for others", .x = {}, .y = {}}}};
  panel.y.least = 0, panel.y.most = 1;
  const auto add = [&](const std::string& name, const Shares& shares) {
    panel.groups.push_back(name);
    panel.series[0].y.push_back(shares.computing), panel.series[1].y.push_back(shares.communicating);
    panel.series[2].y.push_back(shares.waiting);
  };
  add("mean", use.mean);
  if (ranks.size() > 1 && ranks[use.busiest].computing > 1.001 * ranks[use.idlest].computing) {
    add(fmt::format("rank {} (slowest)", use.busiest), shares_of(ranks[use.busiest]));
    add(fmt::format("rank {} (fastest)", use.idlest), shares_of(ranks[use.idlest]));
  }
  return panel;
}

Panel links_panel(const Simulation& simulation) {
  Panel panel{.title = "How busy the links are",
              .x = {},
              .y = {.label = "of the time", .unit = observe::Axis::Unit::percent},
              .series = {{.name = "mean", .x = {}, .y = {}}, {.name = "busiest", .x = {}, .y = {}}}};
  panel.y.least = 0, panel.y.most = 1;
  for (const sim::LinkUse& use : simulation.replayed.links) {
    panel.groups.push_back(use.kind);
    panel.series[0].y.push_back(use.mean), panel.series[1].y.push_back(use.most);
  }
  return panel;
}

Panel failures_panel(const Simulation& simulation) {
  const sim::Survival& life = *simulation.survival;
  Panel panel{.title = "Where the job's weeks go",
              .x = {},
              .y = {.label = "of the time", .unit = observe::Axis::Unit::percent},
              .series = {{.name = {}, .x = {}, .y = {}}},
              .groups = {"steps that count", "lost", "checkpoints", "restarts"}};
  panel.y.least = 0, panel.y.most = 1;
  for (const double part : {life.useful_s, life.lost_s, life.checkpoints_s, life.restarts_s})
    panel.series[0].y.push_back(part / life.wall_s);
  return panel;
}

std::string setting_of(const Simulation& simulation) {
  const schedule::ProgramSettings& s = simulation.settings;
  std::string mesh = fmt::format("{} workers", s.data * s.pipeline * s.tensor);
  if (s.pipeline * s.tensor > 1) mesh += fmt::format(" (data {} × pipeline {} × tensor {})", s.data, s.pipeline, s.tensor);
  return fmt::format("{} on {}, {}, {} samples each in a step, {}{}, jitter {}", simulation.network, simulation.cluster, mesh, s.samples,
                     simulation.strategy, s.zero > 0 ? fmt::format(" with ZeRO {}", s.zero) : "", simulation.jitter);
}

}  // namespace

double percentile(std::vector<double> steps, double share) {
  if (steps.empty()) return 0;
  std::ranges::sort(steps);
  const auto place = static_cast<std::size_t>(std::ceil(share * static_cast<double>(steps.size())));
  return steps[std::clamp<std::size_t>(place, 1, steps.size()) - 1];
}

std::string simulation_text(const Simulation& simulation) {
  const sim::Replayed& r = simulation.replayed;
  std::string text = setting_of(simulation) + "\n\n";
  text += line(step_word(simulation), fmt::format("{} on average; half within {}, 90% within {}, 99% within {}, slowest {}",
                                                  ms_of(mean_of(r.steps)), ms_of(percentile(r.steps, 0.5)), ms_of(percentile(r.steps, 0.9)),
                                                  ms_of(percentile(r.steps, 0.99)), ms_of(percentile(r.steps, 1))));
  if (simulation.modelled_s > 0)
    text += line("closed form", fmt::format("{}, {}", ms_of(simulation.modelled_s), closed_form_word(simulation)));
  text += line("throughput", fmt::format("{} samples/s, {} steps/s{}", observe::show_rate(r.samples_per_s),
                                         observe::show_rate(r.steps_per_s), r.synchronous ? "" : " of all workers together"));
  if (!r.staleness.empty())
    text += line("servers", fmt::format("{}, staleness {:.3g} on average and at most {}{}", observe::plural(r.updates, "update"),
                                        mean_staleness(r.staleness), r.staleness.size() - 1,
                                        r.dropped > 0 ? fmt::format(", {} gradients dropped", r.dropped) : ""));
  if (simulation.survival) text += failures_text(simulation);
  const Utilisation use = utilisation_of(r.ranks);
  text += "\n" + bar_line("computing", use.mean.computing) + bar_line("communicating", use.mean.communicating) +
          bar_line("waiting", use.mean.waiting) + "\n";
  for (const sim::LinkUse& link : r.links)
    text += line(link.kind.c_str(), fmt::format("  {:>6} busy on average{}", percent_of(link.mean),
                                                link.most > 0 ? fmt::format("; {}: {}", link.busiest, percent_of(link.most)) : ""));
  for (const std::string& note : simulation.notes) text += line("note", note);
  return text + fmt::format("\n  {}, {} events, simulated in {}\n", observe::plural(std::ssize(r.steps), step_word(simulation)),
                            observe::show_count(r.events), observe::show_duration(simulation.simulated_in_s));
}

Json simulation_json(const Simulation& simulation) {
  const sim::Replayed& r = simulation.replayed;
  const schedule::ProgramSettings& s = simulation.settings;
  const Utilisation use = utilisation_of(r.ranks);
  Json document = {{"network", simulation.network},
                   {"cluster", simulation.cluster},
                   {"strategy", simulation.strategy},
                   {"mesh", {{"data", s.data}, {"pipeline", s.pipeline}, {"tensor", s.tensor}}},
                   {"zero", s.zero},
                   {"samples_per_rank", s.samples},
                   {"jitter", simulation.jitter},
                   {"synchronous", r.synchronous}};
  document["step_s"] = {{"mean", mean_of(r.steps)},         {"p50", percentile(r.steps, 0.5)}, {"p90", percentile(r.steps, 0.9)},
                        {"p99", percentile(r.steps, 0.99)}, {"max", percentile(r.steps, 1)},   {"closed_form", simulation.modelled_s}};
  document["steps"] = r.steps;
  document["steps_per_s"] = r.steps_per_s, document["samples_per_s"] = r.samples_per_s;
  document["goodput_samples_per_s"] = r.samples_per_s * (simulation.survival ? simulation.survival->share() : 1);
  document["utilisation"] = {{"computing", use.mean.computing}, {"communicating", use.mean.communicating}, {"waiting", use.mean.waiting}};
  for (const sim::LinkUse& link : r.links)
    document["links"].push_back({{"kind", link.kind}, {"mean", link.mean}, {"most", link.most}, {"busiest", link.busiest}});
  if (!r.staleness.empty())
    document["servers"] = {
        {"updates", r.updates}, {"dropped", r.dropped}, {"mean_staleness", mean_staleness(r.staleness)}, {"staleness", r.staleness}};
  if (simulation.survival) {
    const sim::Survival& life = *simulation.survival;
    document["failures"] = {{"goodput_share", life.share()},
                            {"daly_share", simulation.expected_share},
                            {"interval_s", simulation.failing->interval_s},
                            {"job_mtbf_s", simulation.failing->mtbf_s / static_cast<double>(simulation.failing->devices)},
                            {"useful", life.useful_s / life.wall_s},
                            {"lost", life.lost_s / life.wall_s},
                            {"checkpoints", life.checkpoints_s / life.wall_s},
                            {"restarts", life.restarts_s / life.wall_s},
                            {"workers_up", life.workers_up},
                            {"simulated_failures", life.failures}};
  }
  document["notes"] = simulation.notes;
  document["events"] = r.events, document["simulated_in_s"] = simulation.simulated_in_s;
  return document;
}

std::string simulation_picture(const Simulation& simulation) {
  observe::Figure figure{.title = "Simulated training", .subtitle = setting_of(simulation), .panels = {}};
  figure.columns = 2;
  figure.panels = {distribution_panel(simulation), ranks_panel(simulation), links_panel(simulation)};
  if (simulation.survival) figure.panels.push_back(failures_panel(simulation));
  return observe::to_svg(figure);
}

}  // namespace paceline::cli
