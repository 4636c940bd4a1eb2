#include "paceline/train/predicted_time.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/graph/registry.h"
#include "paceline/perf/period.h"
#include "paceline/perf/profile_times.h"
#include "paceline/perf/roofline_times.h"
#include "paceline/tensor/device.h"
#include "paceline/train/memory_plan.h"
#include "paceline/train/step_correction.h"

namespace paceline::train {
namespace {

constexpr const char* kProbed = "cluster.toml";  // written by `paceline probe`

bool on_cpu(const Recipe& recipe) { return tensor::parse_device(recipe.train.device).is_cpu(); }
const char* kind_of(const Recipe& recipe) { return on_cpu(recipe) ? "cpu" : "gpu"; }

bool is_there(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::exists(file, ignored);
}

/// Whether the working folder has a file of `paceline probe` for the run's kind of device. A file that cannot be read is reported when it
/// is used.
bool probed_here(const Recipe& recipe) {
  if (!is_there(kProbed)) return false;
  try {
    const std::string kind = perf::find_cluster(kProbed).device.kind;
    return kind.empty() || kind == kind_of(recipe);
  } catch (const ConfigError&) {
    return true;
  }
}

/// The source of the cluster: the recipe, the file of `paceline probe`, or rules of thumb.
std::string cluster_source(const Recipe& recipe) {
  if (!recipe.train.cluster.empty()) return recipe.train.cluster;
  if (probed_here(recipe)) return kProbed;
  return on_cpu(recipe) ? "two_cores" : "h200";
}

std::string profile_source(const Recipe& recipe) {
  if (!recipe.train.profile.empty()) return recipe.train.profile;
  const std::string usual = recipe.model.network + ".profile.json";
  return is_there(usual) ? usual : "";
}

/// A profile that the recipe names must be of this network and of the cluster's kind of device; one that was merely found in the folder is
/// ignored if it is not.
std::optional<perf::Profile> profile_for(const Recipe& recipe, const graph::Graph& graph, const perf::Cluster& cluster) {
  const std::string source = profile_source(recipe);
  if (source.empty()) return std::nullopt;
  try {
    perf::Profile profile = perf::find_profile(source);
    perf::require_network(profile, graph, source);
    perf::require_device(profile, cluster, source);
    return profile;
  } catch (const ConfigError& problem) {
    if (!recipe.train.profile.empty()) throw;
    log::info("{}; using the cluster's speed instead", problem.what());
    return std::nullopt;
  }
}

/// Peak bytes of worker 0's device during a step, without data on its way to others, which a run does not measure either.
double peak_of(const Recipe& recipe, const graph::Graph& graph, const RunPlace& place, const std::vector<graph::Units>& stages) {
  const memory::Bytes bytes = memory::estimate(graph, plan_of(recipe, place), stages).front().bytes;
  return static_cast<double>(bytes.total() - bytes[memory::Category::communication]);
}

observe::Prediction said(const perf::StepCost& cost) {
  observe::Prediction prediction;
  prediction.step_s = cost.seconds, prediction.low_s = cost.low, prediction.high_s = cost.high;
  prediction.compute_s = cost.split.compute, prediction.optimizer_s = cost.split.optimizer, prediction.encoding_s = cost.split.encoding;
  prediction.exposed_s = cost.split.exposed.sum(), prediction.bubble_s = cost.split.bubble;
  prediction.straggling_s = cost.split.straggling;
  if (!cost.stages.empty()) prediction.bytes = cost.stages.front().bytes.sum();  // for worker 0
  prediction.bottleneck = cost.bottleneck;
  prediction.notes = cost.notes;
  return prediction;
}

}  // namespace

perf::RooflineSettings roofline_settings(const Recipe& recipe, const schedule::ProgramSettings& settings) {
  perf::RooflineSettings made;
  made.tensor = settings.tensor, made.sequence = recipe.parallel.sequence;
  made.precision = perf::precision_named(recipe.train.precision);
  made.storage_bytes = static_cast<double>(settings.storage_bytes), made.fp32_gradients = settings.fp32_gradients;
  made.moments = plan_of(recipe).moments;
  made.offload = recipe.parallel.offload;
  made.compression = recipe.comm.gradient_dtype == "bf16" ? "bf16" : recipe.comm.compression;
  return made;
}

perf::Jitter jitter_of(const perf::ProfileTable& table) {
  return table.jitter > 0 ? perf::Jitter{.distribution = "gamma", .shape = 1 / (table.jitter * table.jitter)} : perf::Jitter{};
}

perf::StepCost mean_cost(const RecipeStep& step, const schedule::ProgramSettings& chosen, const perf::CostModel& model,
                         const perf::ComputeTimes& times, perf::CostOptions options) {
  if (step.period <= 1) return model.cost(step.programs(chosen), chosen, times, options);
  const perf::StepCost alone = model.cost(step.programs_between(chosen), chosen, times, {.crowd = options.crowd});
  options.between_s = static_cast<double>(step.period - 1) * alone.seconds;
  return perf::mean_over_period(model.cost(step.programs(chosen), chosen, times, options), alone, step.period);
}

perf::StepCost model_cost(const Recipe& recipe, const graph::Graph& graph, const PredictedMachine& machine, const RunHosts& hosts,
                          const std::vector<graph::Units>& stages) {
  const RecipeStep step = step_of(recipe, graph, hosts.place, stages);
  const perf::RooflineSettings settings = roofline_settings(recipe, step.settings.front());
  std::unique_ptr<perf::ComputeTimes> times;
  perf::Jitter jitter;
  if (machine.profile) {
    jitter = jitter_of(table_for(machine, settings.precision, hosts.workers_per_host));
    times = measured_times(recipe, graph, machine, settings, hosts.workers_per_host);
  } else {
    times = std::make_unique<perf::RooflineTimes>(graph, machine.cluster.device, settings);
  }
  const bool asynchronous = strategies::is_asynchronous(step.strategy, recipe.ps);
  const perf::CostModel model(machine.cluster);
  std::optional<perf::StepCost> best;
  for (const schedule::ProgramSettings& chosen : step.settings) {
    perf::StepCost cost = mean_cost(step, chosen, model, *times, {.jitter = jitter, .asynchronous = asynchronous, .crowd = machine.crowd});
    // A step of such a run is one worker's minibatch.
    if (step.served) cost.low /= chosen.data, cost.high /= chosen.data, cost.seconds /= chosen.data;
    if (!best || cost.seconds < best->seconds) best = std::move(cost);
  }
  return *best;
}

std::optional<observe::Prediction> predict(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts,
                                           const std::vector<graph::Units>& stages) {
  if (recipe.servers() && !recipe.ps.by_threads() && !recipe.ps.by_processes()) return std::nullopt;
  const PredictedMachine machine = predicted_machine(recipe, graph, hosts);
  perf::StepCost cost = model_cost(recipe, graph, machine, hosts, stages);
  const std::string source = cluster_source(recipe);
  const StepCorrection correction(graph, perf::read_steps(perf::steps_file(source)),
                                  [&](const Recipe& run) { return model_cost(run, graph, machine, hosts).seconds; });
  const double factor = correction.factor(recipe);
  perf::scale(cost, factor);
  observe::Prediction prediction = said(cost);
  prediction.cluster = source, prediction.profile = machine.profile ? profile_source(recipe) : "";
  if (factor != 1) prediction.notes.push_back(fmt::format("times {:.2f}, by steps of such runs in {}", factor, perf::steps_file(source)));
  if (const std::string& kind = machine.cluster.device.kind; !kind.empty() && kind != kind_of(recipe))
    prediction.notes.push_back(fmt::format("cluster {} describes a {}, but the run is on a {}", source, kind, kind_of(recipe)));
  prediction.memory_bytes = peak_of(recipe, graph, hosts.place, stages);
  return prediction;
}

bool knows_machine(const Recipe& recipe) { return !recipe.train.cluster.empty() || probed_here(recipe) || !profile_source(recipe).empty(); }

std::string predicted_source(const Recipe& recipe) { return cluster_source(recipe); }

// As many hosts and devices as the run has. On a CPU, a device of the file is its share of the cores, so fewer ranks have more cores each;
// if there are more ranks, they take turns.
PredictedMachine predicted_machine(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts) {
  perf::Cluster cluster = perf::find_cluster(cluster_source(recipe));
  const double crowd = static_cast<double>(hosts.workers_per_host) / static_cast<double>(std::max<std::int64_t>(cluster.devices, 1));
  perf::Device& device = cluster.device;
  if (on_cpu(recipe) && crowd < 1)
    for (perf::Quantity* value : {&device.flops, &device.tf32.flops, &device.bf16.flops, &device.fp16.flops, &device.memory_bandwidth,
                                  &device.update_bandwidth, &device.reduce_bandwidth, &device.page_bandwidth})
      value->value /= crowd;
  cluster.hosts = hosts.hosts, cluster.devices = hosts.workers_per_host;
  cluster.sides.clear();
  std::optional<perf::Profile> profile = profile_for(recipe, graph, cluster);
  return {.cluster = std::move(cluster), .crowd = std::max(crowd, 1.0), .profile = std::move(profile)};
}

namespace {

std::int64_t workers_with_a_device(const PredictedMachine& machine, std::int64_t workers_per_host) {
  return std::max<std::int64_t>(std::llround(static_cast<double>(workers_per_host) / machine.crowd), 1);
}

}  // namespace

const perf::ProfileTable& table_for(const PredictedMachine& machine, perf::Precision precision, std::int64_t workers_per_host) {
  return machine.profile->table(precision, workers_with_a_device(machine, workers_per_host));
}

std::unique_ptr<perf::ComputeTimes> measured_times(const Recipe& recipe, const graph::Graph& graph, const PredictedMachine& machine,
                                                   const perf::RooflineSettings& settings, std::int64_t workers_per_host) {
  return std::make_unique<perf::ProfileTimes>(graph, table_for(machine, settings.precision, workers_per_host), recipe.optim.name,
                                              machine.cluster.device, settings, workers_with_a_device(machine, workers_per_host));
}

}  // namespace paceline::train
