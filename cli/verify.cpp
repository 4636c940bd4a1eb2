// paceline verify [RUN|FOLDER …]: how far off the predictions of runs were, from their summaries; or, with --table, how far off the
// planner's model is from a table of measured steps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/formatting.h"
#include "paceline/observe/verification.h"
#include "paceline/train/planned.h"
#include "verify_learn.h"
#include "verify_table.h"

namespace paceline::cli {
namespace {

using observe::Verification, observe::VerifiedRun;

struct VerifyFlags {
  std::vector<std::string> folders = {"runs"};
  TableFlags table;
  bool learn = false, json = false;
};

/// A run whose recipe is gone counts as exact.
bool is_exact(const std::filesystem::path& summary) try {
  train::Recipe recipe;
  Config config = recipe.config();
  read_settings(config, {(summary.parent_path() / "recipe.toml").string()});
  return train::is_exact(recipe);
} catch (const Error&) {
  return true;
}

Verification read_runs(const VerifyFlags& flags, observe::ElapsedLine& line) {
  std::vector<VerifiedRun> runs;
  std::size_t found = 0;
  for (const std::string& folder : flags.folders)
    for (const std::filesystem::path& summary : observe::find_summaries(folder)) {
      line.say(observe::plural(static_cast<std::int64_t>(++found), "run"));
      try {
        if (const auto run = observe::read_verified(summary)) {
          runs.push_back(*run);
          runs.back().exact = is_exact(summary);
        }
      } catch (const DataError& problem) {  // one bad file says nothing about the others
        log::warning("left out: {}", problem.what());
      }
    }
  if (runs.empty())
    throw ConfigError(
        fmt::format("none of {} in {} has a prediction to verify; run `paceline probe` and `paceline profile NETWORK`, then train",
                    observe::plural(static_cast<std::int64_t>(found), "run"), fmt::join(flags.folders, ", ")));
  return observe::verify(std::move(runs));
}

std::string signed_percent(double share) { return fmt::format("{:+.1f}%", 100 * share); }

std::string report(const Verification& v) {
  std::string text = fmt::format("{:<44} {:<12} {:<14} {:>7} {:>6} {:>10} {:>10} {:>8}\n", "run", "network", "strategy", "workers", "batch",
                                 "predicted", "measured", "error");
  for (const VerifiedRun& run : v.runs)
    text += fmt::format("{} {} {} {:>7} {:>6} {} {} {:>8}\n", observe::fit(observe::shorten(run.run, 44), 44),
                        observe::fit(run.network, 12), observe::fit(run.strategy, 14), run.workers, run.batch,
                        observe::fit(observe::show_moment(run.predicted_s), 10, observe::Align::right),
                        observe::fit(observe::show_moment(run.measured_s), 10, observe::Align::right), signed_percent(run.error()));
  text += fmt::format("\nerror of {}: mean {:.1f}%, 90th percentile {:.1f}%, worst {:.1f}%; {:.0f}% lie in their interval\n",
                      observe::plural(std::ssize(v.runs), "run"), 100 * v.mean, 100 * v.percentile_90, 100 * v.worst, 100 * v.inside);
  if (v.with_memory > 0)
    text += fmt::format("peak memory of {}: mean error {:.1f}%, worst {:.1f}%\n",
                        observe::plural(static_cast<std::int64_t>(v.with_memory), "run"), 100 * v.memory_mean, 100 * v.memory_worst);
  text += "bias:";
  for (const observe::Bias& bias : v.bias)
    text += fmt::format("{} {} {}", &bias == &v.bias.front() ? "" : ",", bias.part, signed_percent(bias.share));
  text += " (shares of the measured step; of bytes, of those sent)\n";
  for (const observe::Regret& regret : v.regrets)
    text += fmt::format("{}: regret {:.1f}% among {}; predicted fastest {}, measured fastest {}\n", regret.question, 100 * regret.share,
                        observe::plural(static_cast<std::int64_t>(regret.runs), "run"), regret.chosen, regret.best);
  return text;
}

}  // namespace

Action add_verify(CLI::App& app) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::Option* runs = app.add_option("runs", flags->folders, "run folders, or folders that contain them")->capture_default_str();
  CLI::Option* learn = app.add_flag(
      "--learn", flags->learn,
      "save the measured step times of these runs beside the cluster file; predictions of similar runs are then corrected by them");
  app.add_flag("--json", flags->json, "print the results as JSON");
  add_table_flags(app, flags->table)->excludes(runs)->excludes(learn);
  add_examples(app, {"paceline verify", "paceline verify runs --learn", "paceline verify --table vtrain_single_node.csv --calibrate 0.1",
                     "paceline verify runs/mlp-shapes-20260101-120000 --json"});
  return [flags] {
    if (!flags->table.table.empty()) return static_cast<int>(run_verify_table(flags->table, flags->json));
    const Verification verification =
        observe::patiently("reading summaries", [&](observe::ElapsedLine& line) { return read_runs(*flags, line); });
    const std::vector<std::string> learned =
        flags->learn ? observe::patiently("describing these runs", [&] { return learn_steps(verification.runs); })
                     : std::vector<std::string>();
    if (flags->json) print_json(observe::to_json(verification));
    else std::cout << report(verification) << (learned.empty() ? "" : fmt::format("kept in {}\n", fmt::join(learned, ", ")));
    return static_cast<int>(kDone);
  };
}

}  // namespace paceline::cli
