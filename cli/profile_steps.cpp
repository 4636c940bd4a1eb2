#include "profile_steps.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "bench/trial.h"
#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/observe/formatting.h"
#include "paceline/perf/run_steps.h"
#include "paceline/train/predicted_time.h"
#include "paceline/train/step_correction.h"
#include "paceline/train/workers.h"

namespace paceline::cli {
namespace {

/// Ways in which workers share the work. Each has costs of its own that no model counts.
const std::vector<std::vector<std::string>> kRuns = {
    {},
    {"comm.algorithm=ring"},
    {"strategy.name=ssgd", "ps.executor=threads"},
    {"parallel.zero=1"},
    {"parallel.zero=2"},
    {"parallel.zero=3"},
    {"parallel.pipeline=2", "train.micro_batches=4"},
    {"parallel.tensor=2"},
};

train::Recipe recipe_of(const std::vector<std::string>& words, std::int64_t workers, std::int64_t batch) {
  train::Recipe recipe;
  Config config = recipe.config();
  read_settings(config, words);
  recipe.parallel.workers = workers, recipe.data.batch = batch;
  return train::resolve_for(recipe, {});
}

}  // namespace

std::vector<std::string> profile_steps(const ProfiledRuns& runs, const graph::Graph& graph, observe::MeasuringLine& line) {
  constexpr double kLeastSteps = 8, kMostSteps = 150, kMostWarmUp = 40;  // choosing buckets takes about 35 steps
  catch_signals();
  std::vector<std::string> rows;
  std::string file;
  for (const std::int64_t workers : runs.workers)
    for (const std::vector<std::string>& way : kRuns) {
      if (workers == 1 && !way.empty()) break;
      std::vector<std::string> words = runs.words;
      std::ranges::copy(way, std::back_inserter(words));
      const std::string title = fmt::format("{}{}{}", plural(workers, "worker"), way.empty() ? "" : ", ", fmt::join(way, " "));
      line.say(title);
      try {
        const train::Recipe recipe = recipe_of(words, workers, runs.batch);
        const std::int64_t each = recipe.servers() ? workers : 1;  // a parameter server's steps are minibatches
        const double wanted = runs.seconds / std::max(runs.step_s, 1e-9);
        const bench::Measured trial =
            bench::run_trial({.words = words,
                              .workers = workers,
                              .batch = runs.batch,
                              .threads = std::max<std::int64_t>(runs.cores / workers, 1),
                              .warm_up = each * static_cast<std::int64_t>(std::clamp(wanted / 2, kLeastSteps / 2, kMostWarmUp)),
                              .steps = each * static_cast<std::int64_t>(std::clamp(wanted, kLeastSteps, kMostSteps))},
                             stop_requested);
        file = perf::steps_file(train::predicted_source(recipe));
        perf::keep_steps(file, {train::run_step(recipe, graph, trial.settled_s)});
        rows.push_back(fmt::format("    {:<56}{:>12}", title, observe::show_moment(trial.settled_s)));
      } catch (const ConfigError& problem) {
        rows.push_back(fmt::format("    {:<56}{:>12}  {}", title, "-", problem.what()));
      }
    }
  if (!file.empty()) rows.push_back(fmt::format("    kept in {}", file));
  return rows;
}

}  // namespace paceline::cli
