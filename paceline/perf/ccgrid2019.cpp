#include "paceline/perf/ccgrid2019.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "paceline/perf/ccgrid2019_conclusions.h"
#include "paceline/schedule/rounds_cost.h"

namespace paceline::perf {
namespace {

// The slides name the swept value, but not its range.
constexpr std::int64_t kBatches[] = {1, 2, 5, 10, 20, 40, 60, 120, 240};
constexpr double kFactors[] = {0.125, 0.25, 0.5, 1, 2, 4, 8};
constexpr std::int64_t kFusedBytes[] = {0, 1'000'000, 4'000'000, 16'000'000, 64'000'000, 256'000'000, 1'024'000'000};
constexpr std::int64_t kSlidesBatches[] = {10, 60};
constexpr std::int64_t kMostScheduled = 1024;  // the largest number of ranks whose steps are listed: a ring has P² steps
constexpr std::int64_t kPartElements = 4096;   // elements of a rank's part of a chunk, divisible often enough by two

graph::Graph network_graph(const std::string& network) {
  graph::ModelConfig config;
  config.network = network;
  return graph::make_graph(config);
}

Allreduce slides_allreduce(Method method, const Interconnect& net) {
  return [method, net](std::int64_t elements) { return allreduce_seconds(method, net, 4.0 * static_cast<double>(elements)); };
}

/// A point of a sweep.
struct Point {
  std::string_view sweep;
  std::int64_t batch, processes;
  Cluster cluster;
};

void scale_links(Cluster& cluster, double factor) {
  cluster.inside.bandwidth.value *= factor;
  cluster.between.bandwidth.value *= factor;
}

/// Powers of two up to four times the cluster's own number, which replaces the power nearest to it.
std::set<std::int64_t> process_counts(std::int64_t own) {
  std::set<std::int64_t> counts = {own};
  for (std::int64_t count = 2; count <= 4 * own; count *= 2)
    if (3 * count < 2 * own || 2 * count > 3 * own) counts.insert(count);
  return counts;
}

std::vector<Point> points_of(const StudyOptions& options) {
  const std::int64_t own = options.cluster.processes();
  std::vector<Point> points;
  std::set<std::int64_t> batches(std::begin(kBatches), std::end(kBatches));
  batches.insert(options.batch);
  for (const std::int64_t batch : batches) points.push_back({"batch", batch, own, options.cluster});
  for (const std::int64_t count : process_counts(own)) points.push_back({"processes", options.batch, count, options.cluster});
  for (const double factor : kFactors) {
    Cluster faster = options.cluster, wider = options.cluster, linked = options.cluster;
    faster.device.flops.value *= factor;
    wider.device.memory_bandwidth.value *= factor;
    scale_links(linked, factor);
    points.push_back({"flops", options.batch, own, faster});
    points.push_back({"memory_bandwidth", options.batch, own, wider});
    points.push_back({"link_bandwidth", options.batch, own, linked});
  }
  return points;
}

class Runner {
 public:
  explicit Runner(StudyOptions options) {
    study_.options = std::move(options);
    study_.topologies = {Topology::star, Topology::mesh};
    const Topology own = study_.options.cluster.topology;
    if (std::ranges::find(study_.topologies, own) == study_.topologies.end()) study_.topologies.push_back(own);
    study_.ridge = roofline_of(study_.options.cluster.device, study_.options.traffic).ridge();
  }

  Study run() {
    for (const std::string& network : study_.options.networks) {
      const graph::Graph graph = network_graph(network);
      if (work_of(graph, 1).empty())
        throw ConfigError(fmt::format("network '{}' has no matrix products; there is nothing to study", network));
      for (const Point& point : points_of(study_.options)) add_steps(graph, point);
      add_intensities(graph);
      add_fusions(graph);
      add_schedules(graph);
    }
    study_.conclusions = conclusions_of(study_);
    return std::move(study_);
  }

 private:
  void add_steps(const graph::Graph& graph, const Point& point) {
    const Roofline roofline = roofline_of(point.cluster.device, study_.options.traffic);
    const std::vector<LayerTime> times = layer_times(work_of(graph, point.batch), roofline);
    for (const Topology topology : study_.topologies)
      for (const Method method : kMethods) {
        const Interconnect net = interconnect_of(point.cluster, topology, point.processes);
        study_.steps.push_back({.sweep = std::string(point.sweep),
                                .network = graph.network(),
                                .topology = topology,
                                .method = method,
                                .batch = point.batch,
                                .processes = point.processes,
                                .flops_per_s = roofline.flops_per_s,
                                .memory_bytes_per_s = roofline.bytes_per_s,
                                .link_bytes_per_s = net.bytes_per_s,
                                .time = step_time(times, slides_allreduce(method, net))});
      }
  }

  void add_intensities(const graph::Graph& graph) {
    for (const std::int64_t batch : kSlidesBatches)
      for (const OutputTraffic traffic : {OutputTraffic::once, OutputTraffic::twice})
        for (const Phase phase : kPhases)
          study_.intensities.push_back({graph.network(), batch, traffic, phase,
                                        intensity_of(work_of(graph, batch), phase, roofline_of(study_.options.cluster.device, traffic))});
  }

  void add_fusions(const graph::Graph& graph) {
    const Cluster& cluster = study_.options.cluster;
    const auto times = layer_times(work_of(graph, study_.options.batch), roofline_of(cluster.device, study_.options.traffic));
    const Interconnect net = interconnect_of(cluster, Topology::star, cluster.processes());
    for (const Method method : kMethods)
      for (const std::int64_t bytes : kFusedBytes)
        study_.fusions.push_back({graph.network(), method, bytes, step_time(times, slides_allreduce(method, net), bytes / 4)});
  }

  void add_schedules(const graph::Graph& graph) {
    const schedule::Costs costs = costs_of(study_.options.cluster);
    const std::int64_t most = std::min(study_.options.cluster.processes(), kMostScheduled), ranks = most / costs.per_host * costs.per_host;
    const double bytes = 4.0 * static_cast<double>(graph.parameter_count());
    for (const auto& row : schedule::algorithms()) {
      if (ranks < 2 || !row.make.offer(schedule::Collective::allreduce)) continue;
      schedule::Problem problem{.size = static_cast<int>(ranks), .count = graph.parameter_count(), .per_host = costs.per_host};
      problem.chunks = row.make.chunks(problem, 4 * problem.count);
      problem.count = ranks * problem.chunks * kPartElements;
      auto& rounds = rounds_[{row.key, problem.chunks}];
      if (rounds.empty()) rounds = schedule::critical_rounds(row.make, problem, costs.per_host);
      study_.schedules.push_back({.network = graph.network(),
                                  .algorithm = std::string(row.key),
                                  .processes = ranks,
                                  .closed_s = closed_form(row.key, costs, ranks, bytes),
                                  .steps_s = schedule::seconds_of(costs, rounds, bytes / static_cast<double>(problem.count))});
    }
  }

  std::map<std::pair<std::string_view, std::int64_t>, std::vector<schedule::Round>> rounds_;  // by algorithm and chunks
  Study study_;
};

}  // namespace

double StepRow::swept() const {
  if (sweep == "batch") return static_cast<double>(batch);
  if (sweep == "processes") return static_cast<double>(processes);
  if (sweep == "flops") return flops_per_s;
  return sweep == "memory_bandwidth" ? memory_bytes_per_s : link_bytes_per_s;
}

std::string_view name_of(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"yes", "no", "open"};
  return kNames[static_cast<int>(verdict)];
}

std::string title_of(const std::string& network) {
  if (network == "alexnet_ungrouped") return "AlexNet";
  if (network == "resnet50_v2") return "ResNet-50 v2";
  if (network == "inception_v3") return "Inception v3";
  return network == "vgg16" ? "VGG16" : network;
}

Study run_ccgrid2019(StudyOptions options) { return Runner(std::move(options)).run(); }

}  // namespace paceline::perf
