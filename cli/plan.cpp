// paceline plan NETWORK|RECIPE --cluster C --workers N: the fastest way to train on a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/trial.h"
#include "command.h"
#include "network_word.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/graph/registry.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/perf/run_steps.h"
#include "paceline/tensor/device.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/planned.h"
#include "paceline/train/workers.h"
#include "plan_recipe.h"
#include "plan_report.h"

namespace paceline::cli {
namespace {

struct PlanFlags {
  std::vector<std::string> words;  // a network or a recipe, and settings
  std::string cluster, profile, recipe;
  std::int64_t workers = 0, batch = 0, explain = 0, rows = 10, probe_top = 0;
  double memory_gb = 0, price = 0;
  bool json = false;
};

constexpr std::int64_t kSamplesPerWorker = 32;          // if neither a recipe nor --batch gives a number
constexpr std::int64_t kProbedBatches = 8;              // different batches, where data are generated for --probe-top
constexpr const char* kProbedCluster = "cluster.toml";  // what `paceline probe` writes

std::string above_zero(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = error == std::errc() && end == text.data() + text.size() && number > 0 && std::isfinite(number);
  return good ? "" : fmt::format("must be a finite number above 0, not '{}'", text);
}

std::string cluster_word(const PlanFlags& flags) {
  if (!flags.cluster.empty()) return flags.cluster;
  if (std::error_code ignored; std::filesystem::exists(kProbedCluster, ignored)) return kProbedCluster;
  throw ConfigError(
      "--cluster is missing, and there is no cluster.toml here; name one of `paceline list clusters`, or run `paceline probe`");
}

/// Plans for other machines cannot be run on this one.
void require_here(const train::Recipe& recipe, const perf::Cluster& cluster) {
  const std::string here = tensor::parse_device(recipe.train.device).is_cpu() ? "cpu" : "gpu", &there = cluster.device.kind;
  if (!there.empty() && there != here)
    throw ConfigError(
        fmt::format("--probe-top trains on this machine's {}, but the devices of cluster '{}' are of kind \"{}\"; leave it out, or use the "
                    "cluster.toml that `paceline probe` writes",
                    here, cluster.name, there));
}

/// Trains the best plans for some steps each.
std::vector<perf::RunStep> probe_top(const PlanFlags& flags, const std::vector<std::string>& words, const train::Recipe& recipe,
                                     const perf::PlanQuestion& question, const perf::Plans& plans) {
  const auto count = std::min<std::size_t>(static_cast<std::size_t>(flags.probe_top), plans.exact.size());
  std::vector<perf::RunStep> tried;
  catch_signals();
  observe::MeasuringLine line;
  for (std::size_t i = 0; i < count; ++i) {
    const perf::Choice& choice = plans.exact[i].choice;
    line.say(fmt::format("plan {} of {}: {}", i + 1, count, perf::title_of(choice)));
    std::vector<std::string> all = words;
    if (recipe.data.name == "random" && !says(words, "data.train_samples"))
      all.push_back(fmt::format("data.train_samples={}", kProbedBatches * question.batch));
    std::ranges::copy(perf::settings_of(choice), std::back_inserter(all));
    const bench::Measured measured = bench::run_trial(
        {.words = all, .workers = question.workers, .batch = question.batch, .threads = 1, .warm_up = 5, .steps = 15}, stop_requested);
    tried.push_back(train::run_step(train::resolve_for(train::with_choice(recipe, choice), {}), *question.graph, measured.step_s));
  }
  return tried;
}

void write_plan_recipe(const PlanFlags& flags, const train::Recipe& recipe, const perf::Plan& plan) {
  train::Recipe made = train::with_choice(recipe, plan.choice);
  write_atomically(flags.recipe, fmt::format("# {}: a step of {} predicted\n{}", perf::title_of(plan.choice), show_step(plan.cost.seconds),
                                             made.config().toml()));
}

int run_plan(const PlanFlags& flags) {
  if (flags.words.empty()) throw ConfigError("is neither a network nor a recipe file; `paceline list networks` lists the networks");
  refuse_unknown_networks(flags.words);
  std::vector<std::string> words = plan_words(flags.words);
  train::Recipe recipe;
  Config config = recipe.config();
  read_settings(config, words);
  refuse_not_kept(flags.words, recipe);
  const std::string cluster = cluster_word(flags);
  train::PlanInputs inputs{.machine = {.cluster = perf::find_cluster(cluster)}, .workers = flags.workers};
  if (inputs.workers == 0) inputs.workers = recipe.parallel.workers > 0 ? recipe.parallel.workers : inputs.machine.cluster.processes();
  const bool says_batch = says(words, "data.batch") || names_recipe(words);
  if (flags.batch > 0) recipe.data.batch = flags.batch;
  else if (!says_batch) recipe.data.batch = kSamplesPerWorker * inputs.workers;
  if (flags.memory_gb > 0) recipe.train.memory_gb = flags.memory_gb;
  const graph::Graph graph = network_of(recipe, flags.words);
  for (const std::string& word : data_words(graph, flags.words)) config.set(words.emplace_back(word));
  if (!flags.profile.empty()) {
    inputs.machine.profile = perf::find_profile(flags.profile);
    perf::require_network(*inputs.machine.profile, graph, flags.profile);
    perf::require_device(*inputs.machine.profile, inputs.machine.cluster, flags.profile);
  }
  const std::string kept = perf::steps_file(cluster);
  inputs.steps = perf::read_steps(kept);
  if (flags.probe_top > 0) {
    require_here(recipe, inputs.machine.cluster);
    ensure_writable_folder(std::filesystem::absolute(kept).parent_path());
  }
  if (!flags.recipe.empty()) ensure_writable_folder(std::filesystem::absolute(flags.recipe).parent_path());
  const auto ask = [&] {
    perf::PlanQuestion question = train::plan_question(recipe, graph, inputs);
    question.price = flags.price, question.rows = static_cast<std::size_t>(flags.rows), question.fixed = fixed_sizes(flags.words, recipe);
    return question;
  };
  perf::PlanQuestion question = ask();
  perf::Plans plans = observe::patiently("searching for plans", [&] { return perf::make_plans(question); });
  std::ranges::copy(notes_on(recipe), std::back_inserter(plans.notes));
  const auto found = static_cast<std::int64_t>(plans.exact.size());
  if (flags.explain > found)
    throw ConfigError(fmt::format("--explain {}: there {} {}; use 1 to {}", flags.explain, found == 1 ? "is" : "are", found, found));
  if (flags.probe_top > 0) {
    perf::keep_steps(kept, probe_top(flags, words, recipe, question, plans));
    inputs.steps = perf::read_steps(kept);
    question = ask();
    for (perf::Plan& plan : plans.exact) plan = perf::cost_choice(question, plan.choice);
    std::ranges::stable_sort(plans.exact, {}, &perf::Plan::step_s);
  }
  if (!flags.recipe.empty())
    write_plan_recipe(flags, recipe, plans.exact[static_cast<std::size_t>(std::max<std::int64_t>(flags.explain, 1)) - 1]);
  if (flags.json) {
    print_json(plans_json(question, plans));
    return kDone;
  }
  std::cout << plans_text(question, plans);
  if (flags.explain > 0)
    std::cout << explain_text(question, plans.exact[static_cast<std::size_t>(flags.explain) - 1], static_cast<std::size_t>(flags.explain));
  if (!flags.recipe.empty())
    std::cout << fmt::format("\n  wrote {}; train with: paceline train {}{}\n", flags.recipe, flags.recipe,
                             recipe.data.name == "text" && recipe.data.root.empty() ? " data.root=FILE" : "");
  return kDone;
}

}  // namespace

Action add_plan(CLI::App& app) {
  const CLI::Validator positive(above_zero, "");
  auto flags = std::make_shared<PlanFlags>();
  app.add_option("RECIPE", flags->words, "a network or a recipe file, and any settings as section.key=value; sizes in [parallel] are kept");
  app.add_option("--cluster", flags->cluster,
                 "one of `paceline list clusters`, or a cluster file (default cluster.toml, which probe writes)")
      ->type_name(kNameOrFile);
  app.add_option("-n,--workers", flags->workers, "number of devices (default: the recipe's workers, else all devices of the cluster)")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--batch", flags->batch, "samples per step over all workers (default: the recipe's; for a network: 32 per worker)")
      ->check(whole_number(1));
  app.add_option("--memory", flags->memory_gb, "memory per device in GB (default: the cluster's)")->check(positive);
  app.add_option("--price", flags->price, "price of a device per hour, in any currency; plans then show the price of a million samples")
      ->check(positive);
  app.add_option("--profile", flags->profile,
                 "file of `paceline profile` with the network's measured times (default: the roofline of the device)")
      ->type_name(kFile);
  app.add_option("--rows", flags->rows, "number of plans to show")->check(whole_number(1, 1000))->capture_default_str();
  app.add_option("--explain", flags->explain, "explain plan K: its time, its memory, what would make it faster, its step program")
      ->check(whole_number(1));
  app.add_option("--probe-top", flags->probe_top,
                 "train the best K plans on this machine for some steps, with threads as workers, and rank them by the measured time, now "
                 "and in later searches")
      ->check(whole_number(1, 100));
  app.add_option("--write-recipe", flags->recipe, "write the best plan, or the one of --explain, as a recipe to this file")
      ->type_name(kFile);
  add_json_flag(app, flags->json);
  add_examples(
      app,
      {"paceline plan resnet50 --cluster skylake --workers 1000",
       "paceline plan gpt model.layers=24 model.width=2048 model.heads=16 train.precision=bf16 --cluster h100 --workers 64 --explain 1",
       "paceline plan recipes/cifar10_resnet18.toml data.root=DIR --cluster cluster.toml --workers 2 --probe-top 3",
       "paceline plan vgg16 --cluster p100 --workers 16 --price 2.5 --write-recipe vgg16.toml",
       "paceline plan alexnet --cluster h200 --workers 8 parallel.tensor=1 --json"});
  return [flags] { return run_plan(*flags); };
}

}  // namespace paceline::cli
