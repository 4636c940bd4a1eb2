#include "paceline/perf/table_model.h"

#include <algorithm>

#include "paceline/graph/registry.h"
#include "paceline/graph/units.h"
#include "paceline/perf/program_model.h"
#include "paceline/perf/roofline_times.h"

namespace paceline::perf {

/// One transformer, as one rank of a tensor axis has it.
struct TableModel::Network {
  explicit Network(graph::Graph made) : graph(std::move(made)) {}

  graph::Graph graph;
  RooflineSettings settings = {};
  schedule::ProgramModel model = {};
  int units = 0;
};

struct TableModel::Row {
  const Network* network = nullptr;
  schedule::ProgramSettings settings;
  std::vector<schedule::Program> programs;
};

namespace {

constexpr int kHalf = 2;  // bytes: these were trained in 16 bits

graph::Graph graph_of(const MeasuredStep& step) {
  graph::ModelConfig config;
  config.network = "gpt";
  config.layers = step.layers, config.width = step.hidden, config.heads = step.heads;
  config.classes = step.vocabulary, config.input = {step.sequence};
  return graph::make_graph(config);
}

/// As many blocks on every stage; the embedding is with the first of them and the logits with the last.
std::vector<std::vector<int>> even_stages(int units, std::int64_t blocks, std::int64_t ranks) {
  const auto before = static_cast<int>((units - blocks + 1) / 2);  // units before the first block
  std::vector<std::vector<int>> stages;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const int first = rank == 0 ? 0 : before + static_cast<int>(rank * blocks / ranks);
    const int last = rank + 1 == ranks ? units : before + static_cast<int>((rank + 1) * blocks / ranks);
    stages.push_back({first, last});
  }
  return stages;
}

/// As Megatron-LM runs them: gradients are reduced in one piece when the passes are over.
schedule::ProgramSettings program_of(const MeasuredStep& step, int units) {
  schedule::ProgramSettings settings;
  settings.data = static_cast<int>(step.data), settings.pipeline = static_cast<int>(step.pipeline);
  settings.tensor = static_cast<int>(step.tensor);
  settings.samples = step.global_batch / step.data, settings.micro_batches = step.micro_batches();
  settings.bucket_bytes = 0, settings.update_at_end = true;
  settings.wire_bytes = kHalf, settings.storage_bytes = kHalf, settings.activation_bytes = kHalf;
  if (step.pipeline > 1) settings.stages = even_stages(units, step.layers, step.pipeline);
  return settings;
}

}  // namespace

TableModel::TableModel(const std::vector<MeasuredStep>& steps, Programs allreduce) : steps_(steps) {
  for (const MeasuredStep& step : steps) {
    auto& network = networks_[{step.hidden, step.heads, step.layers, step.sequence, step.vocabulary, step.tensor}];
    if (!network) {
      network = std::make_unique<Network>(graph_of(step));
      network->settings.tensor = static_cast<int>(step.tensor);
      network->settings.product_bytes = kHalf, network->settings.storage_bytes = kHalf;
      network->model = program_model(network->graph, {.tensor = network->settings.tensor});
      network->units = static_cast<int>(graph::units_of(network->graph).size());
    }
    Row& row = rows_.emplace_back();
    row.network = network.get();
    row.settings = program_of(step, network->units);
    row.programs = allreduce(network->model, row.settings);
  }
}
TableModel::~TableModel() = default;

std::vector<double> TableModel::predict(const Cluster& cluster, const std::vector<std::size_t>& rows) const {
  const CostModel model(cluster);
  std::map<const Network*, RooflineTimes> times;
  std::vector<double> seconds;
  for (const std::size_t i : rows) {
    const Row& row = rows_[i];
    const auto found = times.try_emplace(row.network, row.network->graph, cluster.device, row.network->settings).first;
    seconds.push_back(model.cost(row.programs, row.settings, found->second).seconds);
  }
  return seconds;
}

}  // namespace paceline::perf
