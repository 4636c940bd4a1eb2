#include "plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "paceline/memory/estimate.h"
#include "paceline/observe/formatting.h"

namespace paceline::cli {
namespace {

using Json = nlohmann::ordered_json;
using observe::Align, observe::fit;

constexpr double kWorthSaying = 0.005;  // of a step; smaller gains are not shown

/// The parts of a step by name, in seconds.
std::vector<std::pair<std::string, double>> split_parts(const perf::Split& split) {
  using Axis = schedule::Action::Axis;
  return {{"compute", split.compute},
          {"data exchange", split.exposed[Axis::data]},
          {"tensor exchange", split.exposed[Axis::tensor]},
          {"pipeline exchange", split.exposed[Axis::pipeline]},
          {"server exchange", split.exposed[Axis::server]},
          {"bubble", split.bubble},
          {"optimizer", split.optimizer},
          {"encoding", split.encoding},
          {"stragglers", split.straggling}};
}

/// A plan's name as it is shown in a row of a table.
std::string short_title(const perf::Choice& choice) {
  constexpr std::string_view kLong = " micro-batches";
  std::string title = perf::title_of(choice);
  if (const auto at = title.find(kLong); at != std::string::npos) title.replace(at, kLong.size(), " micro");
  return title;
}

/// The width of the longest title.
int title_width(const std::vector<perf::Plan>& plans) {
  int width = 20;
  for (const perf::Plan& plan : plans) width = std::max(width, observe::columns(short_title(plan.choice)));
  return width;
}

std::string whole_percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string plan_interval(const perf::StepCost& cost) { return fmt::format("{} – {}", show_step(cost.low), show_step(cost.high)); }

std::string plan_bar(double share, int width = 40) { return observe::repeat("█", static_cast<int>(share * width + 0.5)); }

constexpr int kTalkWidth = 27;

/// In which pieces gradients are sent, and how: "32 MiB ring".
std::string plan_talk(const perf::Plan& plan) {
  const schedule::ProgramSettings& program = plan.choice.program;
  if (plan.algorithm.empty()) return {};
  const std::string pieces = program.zero == 3           ? "units"
                             : program.bucket_bytes == 0 ? "whole"
                                                         : fmt::format("{} MiB", program.bucket_bytes >> 20);
  return fmt::format("{} {}", pieces, plan.algorithm);
}

std::string plan_head(int title, bool measured, bool priced) {
  return fmt::format("  {:>2}  {} {:>9} {} {}{:>8} {:>8} {:>7} {:>9} {:>9} {:>10}{}  {}\n", "#", fit("plan", title), "step",
                     fit("interval", 19), fit("buckets, algorithm", kTalkWidth), "compute", "exchange", "bubble", "optimizer", "memory",
                     "efficiency", priced ? fmt::format(" {:>9}", "price") : "", measured ? "bottleneck          measured" : "bottleneck");
}

std::string plan_row(const perf::Plan& plan, std::size_t number, int title, bool priced) {
  const perf::Split& split = plan.cost.split;
  const double all = std::max(split.total(), 1e-12);
  const std::string tried = plan.measured_s > 0 ? show_step(plan.measured_s) : "";
  return fmt::format("  {:>2}  {} {} {} {}{:>8} {:>8} {:>7} {:>9} {:>9} {:>10}{}  {}\n", number, fit(short_title(plan.choice), title),
                     fit(show_step(plan.cost.seconds), 9, Align::right), fit(plan_interval(plan.cost), 19),
                     fit(plan_talk(plan), kTalkWidth), whole_percent(split.compute / all), whole_percent(split.exposed.sum() / all),
                     whole_percent(split.bubble / all), whole_percent(split.optimizer / all), memory::readable(plan.bytes.total()),
                     whole_percent(plan.efficiency), priced ? fmt::format(" {:>9.4g}", plan.money) : "",
                     tried.empty() ? plan.bottleneck() : fit(plan.bottleneck(), 20) + tried);
}

std::string other_plans_text(const perf::Plans& plans) {
  if (plans.others.empty()) return {};
  const double exact = plans.exact.front().samples_per_s;
  const int title = title_width(plans.others);
  std::string text = fmt::format(
      "\n  These change the training itself: more samples per second need not mean the same accuracy sooner.\n      {} {:>12} {:>14} {:>9} "
      " {}\n",
      fit("plan", title), "samples/s", "of the best", "memory", "what it gives up");
  for (const perf::Plan& plan : plans.others)
    text += fmt::format("      {} {:>12} {:>14} {:>9}  {}\n", fit(short_title(plan.choice), title), observe::show_rate(plan.samples_per_s),
                        fmt::format("{:.2f}×", plan.samples_per_s / exact), memory::readable(plan.bytes.total()), plan.remark);
  return text;
}

std::string plan_gains(const perf::Plan& plan) {
  std::vector<std::string> words;
  for (const perf::Gain& gain : plan.gains) {
    const double share = 1 - gain.seconds / plan.cost.seconds;
    words.push_back(fmt::format("{} {}", gain.what, share < kWorthSaying ? "nothing" : fmt::format("−{}", whole_percent(share))));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string plan_memory(const perf::Plan& plan) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < memory::kCategories; ++i)
    if (plan.bytes.of[i] > 0)
      words.push_back(fmt::format("{} {}", memory::name_of(static_cast<memory::Category>(i)), memory::readable(plan.bytes.of[i])));
  return fmt::format("{}", fmt::join(words, ", "));
}

Json plan_bytes(const memory::Bytes& bytes) {
  Json row;
  for (std::size_t i = 0; i < memory::kCategories; ++i) row[std::string(memory::name_of(static_cast<memory::Category>(i)))] = bytes.of[i];
  row["total"] = bytes.total();
  return row;
}

Json plan_json(const perf::PlanQuestion& question, const perf::Plan& plan) {
  const schedule::ProgramSettings& program = plan.choice.program;
  Json row = {{"title", perf::title_of(plan.choice)},
              {"strategy", plan.choice.strategy},
              {"mesh", {{"data", program.data}, {"pipeline", program.pipeline}, {"tensor", program.tensor}}},
              {"zero", program.zero},
              {"micro_batches", program.micro_batches},
              {"schedule", program.pipeline > 1 ? program.schedule : ""},
              {"recompute", program.recompute},
              {"hybrid", plan.choice.hybrid},
              {"sequence", plan.choice.sequence},
              {"bucket_bytes", program.bucket_bytes},
              {"compression", plan.choice.compression},
              {"algorithm", plan.algorithm},
              {"step_s", plan.cost.seconds},
              {"step_low_s", plan.cost.low},
              {"step_high_s", plan.cost.high}};
  for (const auto& [name, seconds] : split_parts(plan.cost.split)) row["split_s"][name] = seconds;
  row["samples_per_s"] = plan.samples_per_s, row["efficiency"] = plan.efficiency, row["bottleneck"] = plan.bottleneck();
  row["memory_bytes"] = plan_bytes(plan.bytes);
  row["device_hours_per_million_samples"] = plan.device_hours;
  if (question.price > 0) row["price_per_million_samples"] = plan.money;
  for (const perf::Gain& gain : plan.gains) row["doubled_step_s"][gain.what] = gain.seconds;
  if (plan.cost.staleness > 0) row["staleness"] = plan.cost.staleness;
  if (!plan.remark.empty()) row["remark"] = plan.remark;
  row["notes"] = plan.cost.notes;
  row["settings"] = perf::settings_of(plan.choice);
  return row;
}

}  // namespace

std::string show_step(double seconds) {
  // A value that would round to 1,000 of a unit is printed as 1 of the next.
  if (seconds < 0.9995e-6) return fmt::format("{:.3g} ns", seconds * 1e9);
  if (seconds < 0.9995e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  return seconds < 100 ? fmt::format("{:.3g} s", seconds) : observe::show_duration(seconds);
}

std::string plans_text(const perf::PlanQuestion& question, const perf::Plans& plans) {
  const bool measured = std::ranges::any_of(plans.exact, [](const perf::Plan& plan) { return plan.measured_s > 0; });
  const perf::Plan& best = plans.exact.front();
  std::string text =
      fmt::format("{} on {}: {}, a batch of {}, {} each\n  {}: {} too large, {} simulated step by step\n\n", question.graph->network(),
                  question.cluster.name, observe::plural(question.workers, "worker"), observe::plural(question.batch, "sample"),
                  memory::readable(question.memory > 0 ? question.memory : static_cast<std::int64_t>(question.cluster.device.memory.value)),
                  observe::plural(plans.considered, "plan"), observe::show_count(plans.too_large), observe::show_count(plans.costed));
  const int title = title_width(plans.exact);
  text += plan_head(title, measured, question.price > 0);
  for (std::size_t i = 0; i < plans.exact.size(); ++i) text += plan_row(plans.exact[i], i + 1, title, question.price > 0);
  text += other_plans_text(plans);
  text += fmt::format("\n  plan 1: {} samples/s, {} device-hours for a million samples{}\n", observe::show_rate(best.samples_per_s),
                      best.device_hours < 99.95 ? fmt::format("{:.3g}", best.device_hours) : observe::show_rate(best.device_hours),
                      question.price > 0 ? fmt::format(", at a price of {:.4g}", best.money) : "");
  text += fmt::format("    memory      {}\n    if doubled  {}\n", plan_memory(best), plan_gains(best));
  for (const std::string& note : plans.notes) text += fmt::format("  note: {}\n", note);
  return text;
}

std::string explain_text(const perf::PlanQuestion& question, const perf::Plan& plan, std::size_t number) {
  std::string text = fmt::format("\n  plan {}: {}\n    a step takes {} ({}), {} samples/s, efficiency {}\n\n", number,
                                 perf::title_of(plan.choice), show_step(plan.cost.seconds), plan_interval(plan.cost),
                                 observe::show_rate(plan.samples_per_s), whole_percent(plan.efficiency));
  for (const auto& [name, seconds] : split_parts(plan.cost.split))
    if (seconds > 0)
      text +=
          fmt::format("    {:<18}{:>9}  {}\n", name, fit(show_step(seconds), 9, Align::right), plan_bar(seconds / plan.cost.split.total()));
  using Axis = schedule::Action::Axis;
  for (const Axis axis : {Axis::data, Axis::tensor, Axis::pipeline, Axis::server})
    if (plan.cost.bytes[axis] > 0)
      text += fmt::format("    a rank sends {} per step along the {} axis, {} of {} exposed{}\n",
                          memory::readable(static_cast<std::int64_t>(plan.cost.bytes[axis])), name_of(axis),
                          show_step(plan.cost.split.exposed[axis]), show_step(plan.cost.communication[axis]),
                          axis == Axis::data && !plan.algorithm.empty() ? fmt::format("; algorithm {}", plan.algorithm) : "");
  text += fmt::format("\n    memory of {}: {}\n", plan.rank, memory::readable(plan.bytes.total()));
  for (std::size_t i = 0; i < memory::kCategories; ++i)
    if (plan.bytes.of[i] > 0)
      text += fmt::format("    {:<18}{:>9}  {}\n", memory::name_of(static_cast<memory::Category>(i)), memory::readable(plan.bytes.of[i]),
                          plan_bar(static_cast<double>(plan.bytes.of[i]) / static_cast<double>(plan.bytes.total())));
  for (const std::string& note : plan.cost.notes) text += fmt::format("\n    note: {}\n", note);
  text += "\n    twice as fast, and the step takes\n";
  for (const perf::Gain& gain : plan.gains)
    text += fmt::format("    {:<22}{:>9}  −{}\n", gain.what, fit(show_step(gain.seconds), 9, Align::right),
                        whole_percent(std::max(0.0, 1 - gain.seconds / plan.cost.seconds)));
  text += fmt::format("\n    settings\n      {}\n", fmt::join(perf::settings_of(plan.choice), "\n      "));
  const auto programs = perf::programs_of(question, plan.choice);
  constexpr std::size_t kLines = 24;
  text += fmt::format("\n    step program{} ({} actions)\n", programs.size() > 1 ? " of the first stage" : "", programs.front().size());
  const std::vector<std::string> lines = split(schedule::to_text(programs.front()), '\n');
  for (std::size_t i = 0; i < lines.size() && i < kLines; ++i)
    if (!lines[i].empty()) text += "      " + lines[i] + "\n";
  return text + (lines.size() > kLines ? fmt::format("      … {} more\n", lines.size() - kLines) : "");
}

Json plans_json(const perf::PlanQuestion& question, const perf::Plans& plans) {
  Json document = {
      {"network", question.graph->network()}, {"cluster", question.cluster.name}, {"workers", question.workers}, {"batch", question.batch},
      {"considered", plans.considered},       {"too_large", plans.too_large},     {"costed", plans.costed}};
  document["plans"] = Json::array(), document["others"] = Json::array();
  for (std::size_t i = 0; i < plans.exact.size(); ++i) {
    document["plans"].push_back(plan_json(question, plans.exact[i]));
    if (plans.exact[i].measured_s > 0) document["plans"].back()["measured_step_s"] = plans.exact[i].measured_s;
  }
  for (const perf::Plan& plan : plans.others) document["others"].push_back(plan_json(question, plan));
  document["notes"] = plans.notes;
  return document;
}

}  // namespace paceline::cli
