// paceline compare RECIPE: trains with several algorithms, worker counts and seeds, and reports the results (compare_report.h).
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "compare_report.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/log.h"
#include "paceline/observe/formatting.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/tensor/device.h"

namespace paceline::cli {
namespace {

struct CompareFlags {
  std::vector<std::string> words;  // the recipe and the assignments
  std::vector<std::int64_t> workers;
  std::string folder;
  int together = 0;
  bool json = false;
};

/// The default folder: named after the recipe, so that the same command continues after an interruption.
std::filesystem::path default_folder(const CompareFlags& flags, const train::Recipe& recipe) {
  std::string name = fmt::format("{}-{}", recipe.model.network, recipe.data.name);
  for (const std::string& word : flags.words)
    if (!is_assignment(word)) name = std::filesystem::path(word).stem().string();
  return std::filesystem::path(recipe.train.runs) / ("compare-" + name);
}

/// How many runs to make at a time. Several share a GPU well; on a CPU, every run uses the cores that it asks for.
int runs_together(const CompareFlags& flags, const train::Recipe& recipe) {
  if (flags.together > 0) return flags.together;
  if (tensor::parse_device(recipe.train.device).is_cuda()) return 3;
  return recipe.ps.by_virtual_clock() && recipe.train.threads == 1 ? usable_cores() : 1;  // one thread computes for all workers
}

int run_compare(const CompareFlags& flags) {
  train::Recipe recipe;
  if (!names_recipe(flags.words)) recipe = train::Recipe::demonstration();
  Config config = recipe.config();
  read_settings(config, flags.words);
  if (!flags.workers.empty()) recipe.compare.workers = flags.workers;
  const std::filesystem::path folder = flags.folder.empty() ? default_folder(flags, recipe) : std::filesystem::path(flags.folder);
  catch_signals();
  train::Comparison found;
  {
    observe::MeasuringLine line("");
    found = train::compare(recipe, folder, runs_together(flags, recipe), stop_requested,
                           [&](std::size_t done, std::size_t all, const train::Contestant& who, const train::Outcome* outcome) {
                             line.say(fmt::format("{} of {} done; {}, {}, seed {}{}", done, all, who.algorithm,
                                                  observe::plural(who.workers, "worker"), who.seed,
                                                  !outcome                     ? " …"
                                                  : !outcome->diverged.empty() ? ": diverged"
                                                                               : fmt::format(": {:.2f}% error", outcome->final_error)));
                           });
  }
  if (found.stopped) {
    const auto kept = static_cast<std::int64_t>(train::count_finished(folder));
    log::error("stopped on request; {} kept in {}. Run the same command again to continue",
               kept == 1 ? "1 run is" : fmt::format("{} runs are", kept), folder.string());
    return kStopped;
  }
  const bool gpu = tensor::parse_device(recipe.train.device).is_cuda();
  const CompareReport report(recipe, std::string(recipe.ps.executor_on(gpu).key), std::move(found));
  report.write(folder);
  if (flags.json) print_json(report.json());
  else std::cout << report.text() << fmt::format("\n  wrote {} and its figures\n", (folder / "report.md").string());
  return kDone;
}

}  // namespace

Action add_compare(CLI::App& app) {
  auto flags = std::make_shared<CompareFlags>();
  app.add_option("RECIPE", flags->words, "a recipe file, and any settings as section.key=value; [compare] says what is compared");
  app.add_option("-n,--workers", flags->workers, "numbers of workers, separated by commas (compare.workers)")
      ->type_name(kNumberList)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(1));
  app.add_option("--folder", flags->folder, "folder of the runs and the report; runs that are complete there are not repeated")
      ->type_name(kFolder);
  app.add_option("--together", flags->together, "runs at a time; 0: chosen for the device")->check(whole_number(0));
  add_json_flag(app, flags->json);
  add_examples(app,
               {"paceline compare recipes/lc_asgd_quick.toml",
                "paceline compare recipes/lc_asgd_quick.toml compare.workers=[4,8] compare.seeds=[1,2,3]",
                "paceline compare recipes/lc_asgd_cifar10.toml data.root=DIR train.device=cuda --folder results",
                "paceline compare my.toml compare.algorithms=\"sgd; asgd; half: strategy.name=asgd optim.rate=0.05\" --json", "",
                "data.batch counts the samples of one worker. After an interruption, the same command continues with the missing runs."});
  return [flags] { return run_compare(*flags); };
}

}  // namespace paceline::cli
