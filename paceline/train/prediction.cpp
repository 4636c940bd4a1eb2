#include "paceline/train/prediction.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "paceline/graph/registry.h"
#include "paceline/perf/cost.h"
#include "paceline/perf/profile_times.h"
#include "paceline/perf/roofline_times.h"
#include "paceline/tensor/device.h"
#include "paceline/train/memory_plan.h"

namespace paceline::train {
namespace {

constexpr const char* kProbed = "cluster.toml";  // where `paceline probe` writes

bool on_cpu(const Recipe& recipe) { return tensor::parse_device(recipe.train.device).is_cpu(); }

/// What to take the cluster from: what the recipe says, what `paceline probe` left here, or rules of thumb.
std::string cluster_source(const Recipe& recipe) {
  if (!recipe.train.cluster.empty()) return recipe.train.cluster;
  if (std::filesystem::exists(kProbed)) return kProbed;
  return on_cpu(recipe) ? "two_cores" : "h200";
}

std::string profile_source(const Recipe& recipe) {
  if (!recipe.train.profile.empty()) return recipe.train.profile;
  const std::string usual = recipe.model.network + ".profile.json";
  return std::filesystem::exists(usual) ? usual : "";
}

/// Ranks of a host for each of its devices.
double crowd_of(const perf::Cluster& cluster, const RunHosts& hosts) {
  return static_cast<double>(hosts.workers_per_host) / static_cast<double>(std::max<std::int64_t>(cluster.devices, 1));
}

/// Of a device's speed a part for each rank that uses it; more than all of it where a rank has several.
void divide_devices(perf::Cluster& cluster, double crowd) {
  for (perf::Quantity* value : {&cluster.device.flops, &cluster.device.tf32.flops, &cluster.device.bf16.flops, &cluster.device.fp16.flops,
                                &cluster.device.memory_bandwidth, &cluster.device.update_bandwidth, &cluster.device.reduce_bandwidth})
    value->value /= crowd;
}

/// As many hosts and places for ranks as the run has. On a CPU a device of the file is its share of the cores, so that fewer ranks have
/// more of them each; more ranks take turns (perf::CostOptions::crowd).
perf::Cluster cluster_for(const Recipe& recipe, perf::Cluster cluster, const RunHosts& hosts) {
  if (const double crowd = crowd_of(cluster, hosts); on_cpu(recipe) && crowd < 1) divide_devices(cluster, crowd);
  cluster.hosts = hosts.hosts, cluster.devices = hosts.workers_per_host;
  cluster.sides.clear();
  return cluster;
}

observe::Prediction said(const perf::StepCost& cost) {
  observe::Prediction prediction;
  prediction.step_s = cost.seconds, prediction.low_s = cost.low, prediction.high_s = cost.high;
  prediction.compute_s = cost.split.compute, prediction.optimizer_s = cost.split.optimizer, prediction.encoding_s = cost.split.encoding;
  prediction.exposed_s = cost.split.exposed.sum(), prediction.bubble_s = cost.split.bubble;
  prediction.straggling_s = cost.split.straggling;
  if (!cost.stages.empty()) prediction.bytes = cost.stages.front().bytes.sum();  // worker 0's
  prediction.bottleneck = cost.bottleneck;
  prediction.notes = cost.notes;
  return prediction;
}

}  // namespace

perf::RooflineSettings roofline_settings(const Recipe& recipe, const schedule::ProgramSettings& settings) {
  perf::RooflineSettings made;
  made.tensor = settings.tensor, made.sequence = recipe.parallel.sequence;
  made.precision = perf::precision_named(recipe.train.precision);
  made.storage_bytes = static_cast<double>(settings.storage_bytes);
  made.moments = plan_of(recipe).moments;
  made.offload = recipe.parallel.offload;
  made.compression = recipe.comm.gradient_dtype == "bf16" ? "bf16" : recipe.comm.compression;
  return made;
}

std::optional<observe::Prediction> predict(const Recipe& recipe, const graph::Graph& graph, const RunHosts& hosts,
                                           const std::vector<graph::Units>& stages) {
  const auto servers = recipe.servers();
  if (servers && recipe.ps.executor != "threads" && recipe.ps.executor != "processes") return std::nullopt;
  const RecipeStep step = step_of(recipe, graph, hosts.place, stages);
  const std::string source = cluster_source(recipe), profiled = profile_source(recipe);
  const perf::Cluster found = perf::find_cluster(source), cluster = cluster_for(recipe, found, hosts);
  const double crowd = crowd_of(found, hosts);
  const perf::RooflineSettings settings = roofline_settings(recipe, step.settings.front());
  std::optional<perf::Profile> profile;
  std::unique_ptr<perf::ComputeTimes> times;
  perf::Jitter jitter;
  if (!profiled.empty()) {
    profile = perf::find_profile(profiled);
    const perf::ProfileTable& table = profile->table(settings.precision, std::min<std::int64_t>(hosts.workers_per_host, found.devices));
    if (table.jitter > 0) jitter = {.distribution = "gamma", .shape = 1 / (table.jitter * table.jitter)};
    times = std::make_unique<perf::ProfileTimes>(graph, table, recipe.optim.name, cluster.device, settings);
  } else {
    times = std::make_unique<perf::RooflineTimes>(graph, cluster.device, settings);
  }
  const perf::CostModel model(cluster);
  std::optional<perf::StepCost> best;
  for (const schedule::ProgramSettings& chosen : step.settings) {
    const bool together = servers && strategies::paired(step.strategy, recipe.ps).consistency == "bsp";
    perf::StepCost cost =
        model.cost(step.programs(chosen), chosen, *times, {.jitter = jitter, .asynchronous = servers && !together, .crowd = crowd});
    // A step of a run with a parameter server is one worker's minibatch.
    if (servers && cost.steps_per_s > 0) {
      const double each = 1 / cost.steps_per_s / (together ? static_cast<double>(chosen.data) : 1);
      cost.low *= each / cost.seconds, cost.high *= each / cost.seconds, cost.seconds = each;
    }
    if (!best || cost.seconds < best->seconds) best = std::move(cost);
  }
  observe::Prediction prediction = said(*best);
  prediction.cluster = source, prediction.profile = profiled;
  return prediction;
}

bool knows_machine(const Recipe& recipe) {
  return !recipe.train.cluster.empty() || std::filesystem::exists(kProbed) || !profile_source(recipe).empty();
}

perf::Cluster predicted_cluster(const Recipe& recipe, const RunHosts& hosts) {
  const perf::Cluster found = perf::find_cluster(cluster_source(recipe));
  perf::Cluster cluster = cluster_for(recipe, found, hosts);
  // A planner does not know which of its ranks take turns when: all of them, all the time.
  if (const double crowd = crowd_of(found, hosts); on_cpu(recipe) && crowd > 1) divide_devices(cluster, crowd);
  return cluster;
}

std::optional<perf::Profile> predicted_profile(const Recipe& recipe) {
  const std::string source = profile_source(recipe);
  return source.empty() ? std::nullopt : std::optional(perf::find_profile(source));
}

}  // namespace paceline::train
