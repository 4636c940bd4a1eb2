#include "paceline/perf/table_model.h"

#include <algorithm>

#include "paceline/graph/registry.h"
#include "paceline/graph/units.h"
#include "paceline/perf/program_model.h"
#include "paceline/perf/roofline_times.h"

namespace paceline::perf {

/// The part of a transformer that one rank of a tensor axis has.
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

constexpr int kHalf = 2;  // bytes: the runs of the table trained in 16 bits

graph::Graph graph_of(const MeasuredStep& step) {
  graph::ModelConfig config;
  config.network = "gpt";
  config.layers = step.layers, config.width = step.hidden, config.heads = step.heads;
  config.classes = step.vocabulary, config.input = {step.sequence};
  return graph::make_graph(config);
}

/// Every stage has the same number of blocks; the embedding is on the first stage and the logits on the last.
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

/// The roofline, plus the additional time of the logits' products.
class FrameworkTimes final : public ComputeTimes {
 public:
  /// `logits_s`: the additional time of a sample's forward pass.
  FrameworkTimes(const RooflineTimes& roofline, int units, double logits_s) : roofline_(roofline), units_(units), logits_s_(logits_s) {}

  double seconds(const schedule::Action& action, std::int64_t samples) const override {
    const double seconds = roofline_.seconds(action, samples);
    if (action.last != units_) return seconds;
    const bool forward = action.work == schedule::Action::Work::forward, backward = action.work == schedule::Action::Work::backward;
    return seconds + (forward ? 1 : backward ? 2 : 0) * logits_s_ * static_cast<double>(samples);
  }
  double idle_seconds(const schedule::Action& action, std::int64_t samples) const override {
    return roofline_.idle_seconds(action, samples);
  }
  Doubt doubt(std::span<const std::int64_t> samples) const override { return roofline_.doubt(samples); }

 private:
  const RooflineTimes& roofline_;
  int units_;
  double logits_s_;
};

/// As in Megatron-LM: gradients are reduced in one piece after the passes.
schedule::ProgramSettings program_of(const MeasuredStep& step, int units) {
  schedule::ProgramSettings settings;
  settings.data = static_cast<int>(step.data), settings.pipeline = static_cast<int>(step.pipeline);
  settings.tensor = static_cast<int>(step.tensor);
  settings.samples = step.global_batch / step.data, settings.micro_batches = step.micro_batches();
  settings.bucket_bytes = 0, settings.update_at_end = true, settings.algorithm = "ring";
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
      network->settings.precision = Precision::fp16, network->settings.storage_bytes = kHalf;
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

std::vector<double> TableModel::predict(const Cluster& cluster, const Overheads& overheads, const std::vector<std::size_t>& rows) const {
  const CostModel model(cluster);
  std::map<const Network*, RooflineTimes> rooflines;
  std::vector<double> seconds;
  for (const std::size_t i : rows) {
    const Row& row = rows_[i];
    const MeasuredStep& step = steps_[i];
    const Network& network = *row.network;
    const auto roofline = rooflines.try_emplace(&network, network.graph, cluster.device, network.settings).first;
    const double logits = 2 * static_cast<double>(step.sequence * step.vocabulary) * static_cast<double>(step.hidden) /
                          static_cast<double>(step.tensor) / cluster.device.fp16.flops.value;
    const FrameworkTimes times(roofline->second, network.units, (overheads.vocabulary - 1) * logits);
    seconds.push_back(model.cost(row.programs, row.settings, times).seconds + overheads.step_s);
  }
  return seconds;
}

}  // namespace paceline::perf
