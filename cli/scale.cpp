// paceline scale [RECIPE] [section.key=value …] --workers 1,2,4: measures how training speeds up with more workers.
//
// Weak scaling: the recipe's batch is per worker, so the global batch grows with the workers. Strong scaling: the recipe's batch is global,
// and the workers share it. Speed-up is the rate over that of one worker, efficiency the speed-up over the number of workers; if one worker
// was not measured, the rate of the smallest worker count is divided by that count instead. Every worker has the same number of threads, by
// default one, so that a single worker does not get the cores of two.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/trial.h"
#include "command.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/log.h"
#include "paceline/observe/chart.h"
#include "paceline/observe/formatting.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/train/recipe.h"

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;

struct ScaleFlags {
  std::vector<std::string> words;  // the recipe and the settings
  std::vector<std::int64_t> workers = {1, 2};
  std::string mode = "both", svg;
  std::int64_t steps = 100, warm_up = 40;
  bool json = false;
};

/// One row of the report.
struct Scaled {
  std::string mode;
  std::int64_t workers = 1, batch = 0;
  bench::Measured measured;
  double speed_up = 1;

  double efficiency() const { return speed_up / static_cast<double>(workers); }
};

// What is measured
// ---------------------------------------------------------------------------------------------------------------------------------------

train::Recipe recipe_of(const ScaleFlags& flags) {
  train::Recipe recipe;
  if (!names_recipe(flags.words)) recipe = train::Recipe::demonstration();
  Config config = recipe.config();
  read_settings(config, flags.words);
  return recipe;
}

/// The rows in the order in which they are shown. A recipe that some worker count cannot train is rejected here, before anything runs.
std::vector<Scaled> rows_of(const ScaleFlags& flags, const train::Recipe& recipe) {
  std::vector<std::int64_t> numbers = flags.workers;
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<Scaled> rows;
  for (const char* mode : {"weak", "strong"}) {
    if (flags.mode != "both" && flags.mode != mode) continue;
    for (const std::int64_t workers : numbers) {
      train::Recipe tried = recipe;
      tried.parallel.workers = workers;
      tried.data.batch *= mode == std::string_view("weak") ? workers : 1;
      train::validate(tried);
      rows.push_back({.mode = mode, .workers = workers, .batch = tried.data.batch, .measured = {}});
    }
  }
  return rows;
}

void measure(std::vector<Scaled>& rows, const ScaleFlags& flags, std::int64_t threads) {
  observe::MeasuringLine line;
  std::map<std::pair<std::int64_t, std::int64_t>, bench::Measured> done;  // with one worker, the weak run is the strong one
  for (Scaled& row : rows) {
    const auto [known, fresh] = done.try_emplace({row.workers, row.batch});
    if (fresh) {
      line.say(fmt::format("{} scaling, {}, batch {}", row.mode, observe::plural(row.workers, "worker"), row.batch));
      known->second = bench::run_trial({.words = flags.words,
                                        .workers = row.workers,
                                        .batch = row.batch,
                                        .threads = threads,
                                        .warm_up = flags.warm_up,
                                        .steps = flags.steps},
                                       stop_requested);
    }
    row.measured = known->second;
    const Scaled& fewest = *std::ranges::find(rows, row.mode, &Scaled::mode);  // the first row of each mode
    row.speed_up = row.measured.samples_per_s / fewest.measured.samples_per_s * static_cast<double>(fewest.workers);
  }
}

// How it is shown
// ---------------------------------------------------------------------------------------------------------------------------------------

ordered_json to_json(const std::vector<Scaled>& rows) {
  ordered_json list = ordered_json::array();
  for (const Scaled& row : rows)
    list.push_back({{"mode", row.mode},
                    {"workers", row.workers},
                    {"batch", row.batch},
                    {"step_ms", row.measured.step_s * 1e3},
                    {"samples_per_s", row.measured.samples_per_s},
                    {"speed_up", row.speed_up},
                    {"efficiency", row.efficiency()},
                    {"exposed", row.measured.exposed},
                    {"hidden", row.measured.hidden},
                    {"straggler_spread", row.measured.straggler_spread},
                    {"bytes_per_step", row.measured.bytes_per_step}});
  return list;
}

/// The speed-up as a bar, over a lighter one for perfect scaling.
std::string bar(const Scaled& row, std::int64_t most_workers) {
  constexpr double kColumns = 24;
  const auto length = [&](double speed_up) {
    return static_cast<int>(std::lround(kColumns * speed_up / static_cast<double>(most_workers)));
  };
  const int reached = length(row.speed_up), perfect = length(static_cast<double>(row.workers));
  return observe::repeat("█", reached) + observe::repeat("░", perfect - reached);
}

std::string table(const std::vector<Scaled>& rows) {
  using observe::show_percent;
  const std::int64_t most = std::ranges::max(rows, {}, &Scaled::workers).workers;
  std::string text = "  scaling  workers    batch   samples/s  speed-up  efficiency  exposed  hidden  stragglers\n";
  for (const Scaled& row : rows) {
    const bench::Measured& m = row.measured;
    const auto share = [&](double value) { return row.workers == 1 || std::isnan(value) ? std::string("-") : show_percent(value, 1); };
    const auto right = [](const std::string& cell, int width) { return observe::fit(cell, width, observe::Align::right); };
    text += fmt::format("  {:<7}  {:>7}  {:>7}  {:>10}  {:>7.2f}×  {}  {}  {}  {}  {}\n", row.mode, row.workers, row.batch,
                        observe::show_rate(m.samples_per_s), row.speed_up, right(show_percent(row.efficiency(), 1), 10),
                        right(share(m.exposed), 7), right(share(m.hidden), 6), right(share(m.straggler_spread), 10), bar(row, most));
  }
  return text +
         "\n  exposed, hidden: share of the step time in which training waited for communication, or continued during it\n  stragglers: "
         "how much shorter the fastest worker computed than the slowest, warm-up included\n";
}

observe::Figure figure_of(const std::vector<Scaled>& rows, const std::string& title, const std::string& subtitle) {
  const observe::Axis workers{.label = "workers", .log = true};
  const auto share_of = [](const char* what) { return observe::Axis{.label = what, .unit = observe::Axis::Unit::percent, .least = 0}; };
  observe::Panel speed{.title = "speed-up", .x = workers, .y = {.label = "times one worker", .log = true}, .series = {}};
  observe::Panel efficiency{.title = "efficiency", .x = workers, .y = share_of("of perfect"), .series = {}};
  observe::Panel talk{.title = "communication", .x = workers, .y = share_of("of the steps' time"), .series = {}};
  observe::Series perfect{.name = "perfect", .x = {}, .y = {}, .dashed = true};
  for (const char* mode : {"weak", "strong"}) {
    const auto line = [&](const std::string& name, auto value) {
      observe::Series series{.name = name, .x = {}, .y = {}, .markers = true};
      for (const Scaled& row : rows)
        if (row.mode == mode) series.x.push_back(static_cast<double>(row.workers)), series.y.push_back(value(row));
      return series;
    };
    observe::Series speed_up = line(mode, [](const Scaled& row) { return row.speed_up; });
    if (speed_up.x.empty()) continue;
    perfect.x = perfect.y = speed_up.x;
    speed.series.push_back(std::move(speed_up));
    efficiency.series.push_back(line(mode, [](const Scaled& row) { return row.efficiency(); }));
    talk.series.push_back(line(fmt::format("{}, exposed", mode), [](const Scaled& row) { return row.measured.exposed; }));
    talk.series.push_back(line(fmt::format("{}, hidden", mode), [](const Scaled& row) { return row.measured.hidden; }));
  }
  speed.series.push_back(std::move(perfect));
  return {.title = title, .subtitle = subtitle, .panels = {std::move(speed), std::move(efficiency), std::move(talk)}, .panel_width = 300};
}

int run_scale(const ScaleFlags& flags) {
  const train::Recipe recipe = recipe_of(flags);
  std::vector<Scaled> rows = rows_of(flags, recipe);
  if (!flags.svg.empty()) ensure_writable_folder(std::filesystem::absolute(flags.svg).parent_path());
  const std::int64_t threads = std::max<std::int64_t>(recipe.train.threads, 1), most = std::ranges::max(rows, {}, &Scaled::workers).workers;
  if (const int cores = usable_cores(); most * threads > cores)
    log::warning("{} of {} share {}: rows with more workers than cores show contention, not scaling", observe::plural(most, "worker"),
                 observe::plural(threads, "thread"), observe::plural(cores, "core"));
  catch_signals();
  try {
    measure(rows, flags, threads);
  } catch (const Error&) {
    if (!stop_requested) throw;
    log::error("stopped on request; no results were saved");
    return kStopped;
  }

  const std::string title = fmt::format("{} on {}", recipe.model.network, recipe.data.name);
  const std::string subtitle = fmt::format("{} per worker, {} after {} of warm-up", observe::plural(threads, "thread"),
                                           observe::plural(flags.steps, "step"), flags.warm_up);
  if (!flags.svg.empty()) write_atomically(flags.svg, observe::to_svg(figure_of(rows, title, subtitle)));
  if (flags.json)
    print_json({{"network", recipe.model.network},
                {"dataset", recipe.data.name},
                {"strategy", recipe.strategy.name},
                {"threads", threads},
                {"warm_up", flags.warm_up},
                {"steps", flags.steps},
                {"rows", to_json(rows)}});
  else
    std::cout << fmt::format("  {}, {}\n\n{}", title, subtitle, table(rows))
              << (flags.svg.empty() ? "" : fmt::format("\n  wrote {}\n", flags.svg));
  return kDone;
}

}  // namespace

Action add_scale(CLI::App& app) {
  auto flags = std::make_shared<ScaleFlags>();
  app.add_option("RECIPE", flags->words, "a recipe file, and any settings as section.key=value, as for train");
  app.add_option("-n,--workers", flags->workers, "numbers of workers, separated by commas")
      ->type_name(kNumberList)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(1))
      ->default_str("1,2");
  app.add_option("--mode", flags->mode, "weak (data.batch is per worker), strong (data.batch is over all workers) or both")
      ->check(CLI::IsMember({"weak", "strong", "both"}))
      ->capture_default_str();
  app.add_option("--steps", flags->steps, "steps to measure")->check(whole_number(1))->capture_default_str();
  app.add_option("--warm-up", flags->warm_up, "steps before the measurement; choosing the bucket size takes about 35")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--svg", flags->svg, "draw speed-up, efficiency and communication as SVG to this file")->type_name(kFile);
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline scale --workers 1,2,4                               the built-in demonstration",
                     "paceline scale recipes/cifar10_resnet18.toml data.root=DIR --workers 1,2 --steps 50",
                     "paceline scale model.network=mlp data.name=random --mode weak --svg scaling.svg",
                     "paceline scale my.toml --workers 2 comm.link_gbit_per_s=1 --json", "",
                     "Speed-up: throughput divided by that of one worker. Efficiency: speed-up divided by the number of workers."});
  return [flags] { return run_scale(*flags); };
}

}  // namespace paceline::cli
