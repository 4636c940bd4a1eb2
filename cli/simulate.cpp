// paceline simulate NETWORK|RECIPE: replays the steps of a job on a simulated cluster.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "network_word.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"
#include "paceline/graph/registry.h"
#include "paceline/observe/elapsed_line.h"
#include "paceline/observe/trace.h"
#include "paceline/perf/goodput.h"
#include "paceline/perf/profile_times.h"
#include "paceline/perf/step_cost.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/memory_plan.h"
#include "paceline/train/predicted_time.h"
#include "paceline/train/step_settings.h"
#include "simulate_report.h"

namespace paceline::cli {
namespace {

constexpr double kMostHosts = 1e6;     // of a cluster file
constexpr std::int64_t kSamples = 32;  // per worker, if only a network is named

struct SimulateFlags {
  std::vector<std::string> words;  // a network or a recipe, and settings
  std::string cluster = "skylake", profile, jitter, mtbf, checkpoint_every, checkpoint_time, restart_time = "5m", trace, picture;
  std::vector<std::string> slow_hosts, slow_switches;
  std::int64_t workers = 0, batch = 0, steps = 20, switch_hosts = 0, traced = 16;
  bool json = false;
};

double number_before(std::string_view text, std::string_view& rest, const char* flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || !(value >= 0) || !std::isfinite(value))
    throw ConfigError(fmt::format("{}: '{}' does not start with a finite number of at least 0", flag, text));
  return value;
}

/// Parses "90s", "5m", "1.5h", "30d", "4y" into seconds.
double duration_of(const std::string& text, const char* flag) {
  std::string_view unit;
  const double value = number_before(text, unit, flag);
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1e-3}, {"s", 1},     {"m", 60},
                                                            {"h", 3600},  {"d", 86400}, {"y", 365.25 * 86400}};
  for (const auto& [name, seconds] : kUnits)
    if (unit == name) return value * seconds;
  throw ConfigError(fmt::format("{}: '{}' needs a unit (ms, s, m, h, d or y), for example {} 30m", flag, text, flag));
}

/// Parses "3:10": number 3 is ten times slower.
std::vector<sim::Faults::Slow> slow_of(const std::vector<std::string>& texts, const char* flag) {
  std::vector<sim::Faults::Slow> slow;
  for (const std::string& text : texts) {
    std::string_view rest;
    const double number = number_before(text, rest, flag);
    if (!rest.starts_with(':') || number != std::floor(number) || number > kMostHosts)
      throw ConfigError(fmt::format("{}: '{}' is not NUMBER:FACTOR, for example {} 3:10", flag, text, flag));
    const double factor = number_before(rest.substr(1), rest, flag);
    if (!rest.empty() || factor < 1)
      throw ConfigError(fmt::format("{}: the factor of '{}' must be at least 1, for example {} 3:10", flag, text, flag));
    slow.push_back({static_cast<std::int64_t>(number), factor});
  }
  return slow;
}

/// --jitter gamma:25, exponential_tail:0.2 or constant. Without it: timing.distribution if an argument sets that, else constant.
void set_jitter(ps::TimingConfig& timing, const SimulateFlags& flags) {
  const auto sets = [](const std::string& word) {
    return word.starts_with("timing.distribution=") || word.starts_with("timing.shape=") || word.starts_with("timing.tail=");
  };
  if (flags.jitter.empty()) {
    if (std::ranges::none_of(flags.words, sets)) timing.distribution = "constant";
    return;
  }
  const std::size_t colon = flags.jitter.find(':');
  timing.distribution = flags.jitter.substr(0, colon);
  constexpr std::string_view kChoices[] = {"constant", "gamma", "exponential_tail"};
  if (std::ranges::find(kChoices, timing.distribution) == std::end(kChoices))
    throw ConfigError("--jitter: " + unknown_message("distribution", timing.distribution, kChoices));
  if (colon == std::string::npos) return;
  std::string_view rest;
  const std::string parameter = flags.jitter.substr(colon + 1);
  (timing.distribution == "gamma" ? timing.shape : timing.tail) = number_before(parameter, rest, "--jitter");
  if (!rest.empty() || timing.distribution == "constant")
    throw ConfigError(fmt::format("--jitter: '{}' is not constant, gamma:SHAPE or exponential_tail:SHARE", flags.jitter));
}

std::string jitter_text(const ps::TimingConfig& timing) {
  if (timing.distribution == "gamma") return fmt::format("gamma:{:.4g}", timing.shape);
  return timing.distribution == "exponential_tail" ? fmt::format("exponential_tail:{:.4g}", timing.tail) : timing.distribution;
}

train::Recipe simulated_recipe(SimulateFlags& flags, const perf::Cluster& cluster) {
  refuse_unknown_networks(flags.words);
  train::Recipe recipe;
  const auto network = std::ranges::find_if(flags.words, names_network);
  const bool alone = network != flags.words.end();
  if (alone) {
    recipe.model.network = *network, recipe.data.name = "random";
    flags.words.erase(network);
  }
  Config config = recipe.config();
  read_settings(config, flags.words);
  if (flags.workers == 0) flags.workers = recipe.parallel.workers > 0 ? recipe.parallel.workers : cluster.processes();
  if (flags.workers > cluster.processes())
    throw ConfigError(fmt::format("--workers {}: cluster {} has only {} devices; use at most that many", flags.workers, cluster.name,
                                  cluster.processes()));
  recipe.parallel.workers = flags.workers;
  const bool says_batch = std::ranges::any_of(flags.words, [](const std::string& word) { return word.starts_with("data.batch="); });
  if (flags.batch > 0) recipe.data.batch = flags.batch;
  else if (alone && !says_batch) recipe.data.batch = kSamples * recipe.parallel.data_workers();
  set_jitter(recipe.timing, flags);
  if (recipe.strategy.name == strategies::kPlan)
    throw ConfigError(
        "strategy.name=plan: the simulator needs a fixed strategy; run `paceline plan … --write-recipe planned.toml`, then simulate "
        "planned.toml");
  if (recipe.ps.leaves_executor_open()) recipe.ps.executor = ps::kProcesses;  // the simulated workers have hosts of their own
  train::validate(recipe);
  return recipe;
}

/// A rule of thumb if no flag sets it: parameters and moments, at one gigabyte per second.
double checkpoint_seconds(const SimulateFlags& flags, const graph::Graph& graph, int moments) {
  if (!flags.checkpoint_time.empty()) return duration_of(flags.checkpoint_time, "--checkpoint-time");
  return 4.0 * (1 + moments) * static_cast<double>(graph.parameter_count()) / 1e9;
}

void add_failures(Simulation& simulation, const SimulateFlags& flags, double checkpoint_s, std::uint64_t seed) {
  sim::FailureSettings failing{.mtbf_s = duration_of(flags.mtbf, "--mtbf"), .checkpoint_s = checkpoint_s, .seed = seed};
  if (!(failing.mtbf_s > 0)) throw ConfigError("--mtbf must be above 0, for example --mtbf 4y");
  const schedule::ProgramSettings& s = simulation.settings;
  const std::int64_t ranks = static_cast<std::int64_t>(s.data) * s.pipeline * s.tensor;
  const bool served = !simulation.replayed.staleness.empty();
  failing.devices = served && !simulation.replayed.synchronous ? s.servers : ranks + (served ? s.servers : 0);
  failing.workers = served && !simulation.replayed.synchronous ? ranks : 0;
  failing.restart_s = duration_of(flags.restart_time, "--restart-time");
  perf::Failures model{.mtbf_s = failing.mtbf_s, .devices = failing.devices, .checkpoint_s = checkpoint_s, .restart_s = failing.restart_s};
  failing.interval_s =
      flags.checkpoint_every.empty() ? perf::best_interval(model) : duration_of(flags.checkpoint_every, "--checkpoint-every");
  model.interval_s = failing.interval_s;
  const double job_mtbf = failing.mtbf_s / static_cast<double>(failing.devices);
  failing.failures = static_cast<std::int64_t>(std::clamp(1e6 * (failing.interval_s + checkpoint_s) / job_mtbf, 50.0, 5000.0));
  simulation.expected_share =
      perf::goodput(model).share * (failing.workers > 0 ? failing.mtbf_s / (failing.mtbf_s + failing.restart_s) : 1);
  simulation.failing = failing;
  simulation.survival = observe::patiently("simulating failures", [&] { return sim::survive(failing, simulation.replayed.steps); });
}

/// Seconds of compute actions, from the device's roofline or as measured.
struct DeviceTimes {
  std::optional<perf::Profile> profile;
  std::unique_ptr<perf::ComputeTimes> times;

  DeviceTimes(const SimulateFlags& flags, const train::Recipe& recipe, const graph::Graph& graph, const perf::Cluster& cluster,
              const perf::RooflineSettings& settings) {
    if (flags.profile.empty()) {
      times = std::make_unique<perf::RooflineTimes>(graph, cluster.device, settings);
      return;
    }
    profile = perf::find_profile(flags.profile);
    perf::require_network(*profile, graph, flags.profile);
    perf::require_device(*profile, cluster, flags.profile);
    const std::int64_t per_host = std::min(flags.workers, cluster.devices);
    times = std::make_unique<perf::ProfileTimes>(graph, profile->table(settings.precision, per_host), recipe.optim.name, cluster.device,
                                                 settings, per_host);
  }
};

/// A run tries several bucket sizes and keeps the fastest.
void choose_settings(Simulation& simulation, const train::RecipeStep& step, const perf::CostModel& model, const perf::ComputeTimes& times,
                     bool asynchronous) {
  for (const schedule::ProgramSettings& settings : step.settings) {
    const perf::StepCost cost = train::mean_cost(step, settings, model, times, {.asynchronous = asynchronous});
    if (simulation.modelled_s > 0 && cost.seconds >= simulation.modelled_s) continue;
    simulation.modelled_s = cost.seconds, simulation.settings = settings, simulation.notes = cost.notes;
  }
}

sim::Job job_of(const SimulateFlags& flags, const train::Recipe& recipe, const perf::Cluster& cluster) {
  sim::Job job{.stages = {}, .settings = {}, .cluster = cluster};
  if (const auto servers = recipe.servers()) job.servers = {servers->ps.consistency, servers->ps};
  job.timing = recipe.timing;
  job.faults = {slow_of(flags.slow_hosts, "--slow-host"), slow_of(flags.slow_switches, "--slow-switch")};
  job.hosts_per_switch = flags.switch_hosts;
  job.steps = flags.steps, job.seed = static_cast<std::uint64_t>(recipe.train.seed);
  return job;
}

/// The spans of the first ranks are written to the file of --trace.
void add_trace(sim::Job& job, observe::Bus& bus, const SimulateFlags& flags) {
  bus.add(std::make_unique<observe::Trace>(flags.trace, bus));
  job.traced = static_cast<int>(std::min<std::int64_t>(flags.traced, flags.workers));
  job.trace = [&bus](const sim::Span& span) {
    bus.emit(observe::Span{.name = span.name, .lane = std::string(span.lane), .rank = span.rank, .begin = span.begin, .end = span.end});
  };
}

void print_simulation(const Simulation& simulation, const SimulateFlags& flags, int traced) {
  if (flags.json) return print_json(simulation_json(simulation));
  std::cout << simulation_text(simulation);
  if (!flags.picture.empty()) std::cout << fmt::format("  picture: {}\n", flags.picture);
  if (!flags.trace.empty()) std::cout << fmt::format("  trace of {}: {}, for ui.perfetto.dev\n", plural(traced, "rank"), flags.trace);
}

int run_simulate(SimulateFlags flags) {
  const perf::Cluster cluster = perf::find_cluster(flags.cluster);
  const std::vector<std::string> words = flags.words;
  const train::Recipe recipe = simulated_recipe(flags, cluster);
  const graph::Graph graph = network_of(recipe, words);
  const auto hosts = static_cast<int>((flags.workers + cluster.devices - 1) / cluster.devices);
  const train::RecipeStep step = train::step_of(recipe, graph, {.hosts = hosts, .shares_memory = true});
  sim::Job job = job_of(flags, recipe, cluster);
  for (const std::string& file : {flags.trace, flags.picture})
    if (!file.empty()) ensure_writable_folder(std::filesystem::absolute(file).parent_path());

  const perf::RooflineSettings device = train::roofline_settings(recipe, step.settings.front());
  const DeviceTimes device_times(flags, recipe, graph, cluster, device);
  const perf::CostModel model(cluster);
  Simulation simulation{
      .network = graph.network(), .cluster = cluster.name, .strategy = step.strategy, .jitter = jitter_text(recipe.timing)};
  choose_settings(simulation, step, model, *device_times.times, strategies::is_asynchronous(step.strategy, recipe.ps));
  job.stages = step.programs(simulation.settings), job.settings = simulation.settings;
  if (step.period > 1) {
    job.between = step.programs_between(simulation.settings), job.period = step.period;
    if (step.served) job.opening = step.opening(simulation.settings), job.stages = step.closing(simulation.settings);
    job.steps = (job.steps + step.period - 1) / step.period * step.period;  // rounded up to whole periods
  }

  observe::Bus bus;
  if (!flags.trace.empty()) add_trace(job, bus, flags);
  const SteadyClock clock;
  const Nanoseconds begun = clock.now();
  const sim::CollectiveModel collectives{
      .algorithm = [&](const schedule::Action& action) { return model.algorithm_of(action, job.settings); },
      .seconds = [&](const schedule::Action& action) { return model.collective_seconds(action, job.settings); }};
  simulation.replayed = observe::patiently("simulating the steps", [&] { return sim::replay(job, *device_times.times, collectives); });
  simulation.simulated_in_s = seconds(clock.now() - begun);
  if (!flags.mtbf.empty()) add_failures(simulation, flags, checkpoint_seconds(flags, graph, device.moments), job.seed);
  if (!flags.picture.empty()) write_atomically(flags.picture, simulation_picture(simulation));
  print_simulation(simulation, flags, job.traced);
  return kDone;
}

}  // namespace

Action add_simulate(CLI::App& app) {
  auto flags = std::make_shared<SimulateFlags>();
  app.add_option("NETWORK|RECIPE", flags->words, "a network or a recipe file, and any settings as section.key=value")->required();
  app.add_option("--cluster", flags->cluster, "one of `paceline list clusters`, or a cluster file (default skylake)")
      ->type_name(kNameOrFile);
  app.add_option("-n,--workers", flags->workers, "ranks (default: all devices of the cluster)")->check(whole_number(1, 100'000));
  app.add_option("--batch", flags->batch, "samples per step over all workers (default: the recipe's; for a network: 32 per worker)")
      ->check(whole_number(1));
  app.add_option("--steps", flags->steps, "steps to replay (default 20)")->check(whole_number(1, 1'000'000));
  app.add_option("--profile", flags->profile,
                 "file of `paceline profile` with the network's measured times (default: the roofline of the device)")
      ->type_name(kFile);
  app.add_option("--jitter", flags->jitter,
                 "how a worker's time varies between steps: constant, gamma:SHAPE or exponential_tail:SHARE (default constant)");
  app.add_option("--slow-host", flags->slow_hosts, "N:FACTOR: the link of host N is slower by this factor; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--slow-switch", flags->slow_switches, "N:FACTOR: the links of switch N are slower by this factor; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--switch-hosts", flags->switch_hosts, "hosts per switch (default: 16 in an oversubscribed fat tree, else all)")
      ->check(whole_number(1));
  CLI::Option* mtbf =
      app.add_option("--mtbf", flags->mtbf, "mean time between failures of a device, for example 4y or 2000h")->type_name(kTime);
  app.add_option("--checkpoint-every", flags->checkpoint_every, "time between checkpoints, for example 30m (default: the best interval)")
      ->type_name(kTime)
      ->needs(mtbf);
  app.add_option("--checkpoint-time", flags->checkpoint_time, "time to write a checkpoint, for example 20s (default: its bytes at 1 GB/s)")
      ->type_name(kTime)
      ->needs(mtbf);
  app.add_option("--restart-time", flags->restart_time, "time from a failure until the job runs again (default 5m)")
      ->type_name(kTime)
      ->needs(mtbf);
  CLI::Option* trace =
      app.add_option("--trace", flags->trace, "write a trace of the first ranks to this file, for ui.perfetto.dev")->type_name(kFile);
  app.add_option("--trace-ranks", flags->traced, "ranks in the trace (default 16)")->check(whole_number(1, 10'000))->needs(trace);
  app.add_option("--svg", flags->picture, "draw step times, ranks and links as SVG to this file")->type_name(kFile);
  add_json_flag(app, flags->json);
  add_examples(app,
               {"paceline simulate resnet50 --cluster p100 --workers 512 --jitter gamma:100 --svg picture.svg",
                "paceline simulate resnet50 --cluster skylake --workers 1000 --slow-host 17:10 comm.algorithm=ring",
                "paceline simulate resnet50 --cluster p100 --workers 64 strategy.name=asgd ps.servers=4 --jitter gamma:25",
                "paceline simulate gpt --cluster h100 --workers 1024 parallel.tensor=4 parallel.pipeline=4 train.micro_batches=8 --mtbf 4y",
                "paceline simulate recipes/mnist_lenet5.toml data.root=DIR --cluster laptop --workers 4 --trace trace.json --json"});
  return [flags] { return run_simulate(*flags); };
}

}  // namespace paceline::cli
