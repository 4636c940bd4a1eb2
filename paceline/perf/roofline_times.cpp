#include "paceline/perf/roofline_times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/graph/units.h"
#include "paceline/perf/coding.h"
#include "paceline/perf/roofline.h"
#include "paceline/perf/uncertainty.h"

namespace paceline::perf {
namespace {

using graph::Kind;
using Work = schedule::Action::Work;

double amount(std::int64_t count) { return static_cast<double>(count); }

/// The traffic of a layer without matrix products: tensors of the size of its output or input, forward and backward, and the number of
/// operations of each.
struct Moves {
  double forward_out, forward_in, back_out, back_in;
  int forward_launches, back_launches;
};

Moves moves_of(Kind kind) {
  switch (kind) {
    case Kind::input:
    case Kind::flatten: return {0, 0, 0, 0, 0, 0};
    case Kind::batch_norm: return {1, 2, 2, 3, 1, 1};  // statistics first, then the values
    case Kind::layer_norm: return {1, 1, 1, 2, 1, 2};
    case Kind::lrn: return {2, 3, 3, 4, 2, 3};
    case Kind::add: return {3, 0, 1, 0, 1, 1};
    case Kind::embedding: return {2, 0, 2, 0, 2, 2};
    case Kind::max_pool:
    case Kind::avg_pool:
    case Kind::global_pool:
    case Kind::concat: return {1, 1, 1, 1, 1, 1};
    case Kind::softmax_loss: return {1, 2, 0, 2, 2, 2};
    case Kind::conv:
    case Kind::fc: return {0, 0, 0, 0, 1, 2};
    case Kind::attention: return {0, 0, 0, 0, 6, 12};
    case Kind::experts: return {0, 0, 0, 0, 8, 16};
    case Kind::relu:
    case Kind::relu6:
    case Kind::gelu:
    case Kind::tanh:
    case Kind::sigmoid:
    case Kind::dropout: return {1, 1, 1, 2, 1, 1};
  }
  throw InternalError("a kind of layer without a cost");
}

double bytes_of(Precision precision) { return precision == Precision::bf16 || precision == Precision::fp16 ? 2 : 4; }

std::int64_t share(std::int64_t whole, int parts) { return (whole + parts - 1) / parts; }

/// A rank's part of a pair of products: of the first, its output features; of the second, its input features.
void cut_product(std::array<std::vector<Gemm>, 3>& products, std::size_t index, bool column, int parts) {
  Gemm &forward = products[0][index], &weights = products[2][index];
  auto& dim = column ? forward.m : forward.k;
  dim = share(dim, parts);
  if (index < products[1].size()) {
    Gemm& gradient = products[1][index];
    auto& other = column ? gradient.k : gradient.m;
    other = share(other, parts);
  }
  auto& third = column ? weights.m : weights.n;
  third = share(third, parts);
}

void cut_work(LayerWork& work, const graph::LayerSplit& how, Kind kind, int parts) {
  if (how.form == graph::Form::whole) return;
  const bool pair = kind == Kind::attention;
  cut_product(work.products, 0, pair || how.form != graph::Form::row, parts);
  if (!pair) return;
  cut_product(work.products, 1, false, parts);
  for (const std::size_t phase : {0, 1})  // heads
    for (std::size_t i = 2; i < work.products[phase].size(); ++i)
      work.products[phase][i].count = share(work.products[phase][i].count, parts);
}

/// From sums over units [0, i): the part for the action's units and phases.
double in_phases(const std::array<std::vector<double>, 3>& sums, const schedule::Action& action) {
  const auto of = [&](std::size_t phase) {
    return sums[phase].at(static_cast<std::size_t>(action.last)) - sums[phase].at(static_cast<std::size_t>(action.first));
  };
  if (action.work == Work::forward) return of(0);
  if (action.work == Work::input_gradients) return of(1);
  return action.work == Work::weight_gradients ? of(2) : of(1) + of(2);
}

}  // namespace

struct RooflineTimes::Network {
  graph::Graph graph;
  std::vector<graph::Unit> units;
  graph::TensorSplit split;
  Roofline roofline;
  Speed speed;
  double element;
  mutable std::int64_t latest = 0;  // the last requested number of samples: a program's actions have only one or two different numbers
  mutable const Sums* latest_sums = nullptr;

  /// Seconds of the device for the forward pass, input gradients and weight gradients, and the number of launches of each.
  struct Cost {
    std::array<double, 3> seconds{}, launches{};
    double within_s = 0, outside_s = 0;  // of products whose sizes are within the measured range, and outside of it
  };

  double product_seconds(const Gemm& gemm, bool convolution, Cost& cost) const {
    const double size = gemm.flops();  // a batch of products is one operation
    if (!speed.products.known() && !(convolution && speed.convolutions.known())) {
      // As in the slides, but for elements of another width.
      const double intensity = roofline.intensity(gemm) * 4 / element;
      return gemm.flops() / std::min(roofline.bytes_per_s * intensity, speed.flops.value);
    }
    const double rate = convolution ? speed.convolution_flops_per_s(size) : speed.product_flops_per_s(size);
    const double bytes = element * amount(gemm.count) * (amount(gemm.m * gemm.n) + amount(gemm.m * gemm.k) + amount(gemm.k * gemm.n));
    const double seconds = std::max(gemm.flops() / rate, convolution ? 0 : bytes / roofline.bytes_per_s);
    const Efficiency& table = convolution && speed.convolutions.known() ? speed.convolutions : speed.products;
    (table.covers(size) ? cost.within_s : cost.outside_s) += seconds;
    return seconds;
  }
  Cost layer(std::size_t index, std::int64_t samples, bool first) const {
    const graph::Layer& whole = graph.layers()[index];
    const bool splits = split.parts > 1;
    const auto local = [&](std::size_t layer) {
      return amount(graph::elements((splits ? graph::local_layer(graph, split, layer, 0) : graph.layers()[layer]).output));
    };
    const double out = local(index) * amount(samples) * element;
    double in = 0;
    for (const int input : whole.inputs) in += local(static_cast<std::size_t>(input)) * amount(samples) * element;
    const Moves moves = moves_of(whole.kind);
    Cost cost;
    cost.seconds[0] = (moves.forward_out * out + moves.forward_in * in) / roofline.bytes_per_s;
    cost.seconds[1] = (moves.back_out * out + moves.back_in * in) / roofline.bytes_per_s;
    cost.launches = {amount(moves.forward_launches), amount(moves.back_launches), 0};
    auto work = layer_work(graph, index, samples);
    if (!work) return cost;
    if (splits) cut_work(*work, split.layers[index], whole.kind, split.parts);
    if (first) work->products[1].clear();
    for (std::size_t phase = 0; phase < 3; ++phase)
      for (const Gemm& gemm : work->products[phase]) cost.seconds[phase] += product_seconds(gemm, whole.kind == Kind::conv, cost);
    const double launches = amount(moves.back_launches) / 2;
    cost.launches = {amount(moves.forward_launches), first ? 0 : launches, launches};
    if (whole.kind == Kind::attention) {  // the scores are written, scaled, masked and read, and their gradients as well
      const double positions = amount(whole.output.front());
      const double scores = amount(samples * share(whole.heads, split.parts)) * positions * positions * element / roofline.bytes_per_s;
      cost.seconds[0] += 4 * scores, cost.seconds[1] += 6 * scores;
    }
    return cost;
  }
};

RooflineTimes::RooflineTimes(const graph::Graph& graph, const Device& device, const RooflineSettings& settings)
    : network_(std::make_unique<Network>(
          Network{.graph = graph,
                  .units = graph::units_of(graph),
                  .split = settings.tensor > 1 ? graph::tensor_split(graph, settings.tensor, settings.sequence) : graph::TensorSplit{},
                  .roofline = roofline_of(device, OutputTraffic::once),
                  .speed = device.speed(settings.precision),
                  .element = bytes_of(settings.precision)})),
      device_(device),
      settings_(settings) {}
RooflineTimes::~RooflineTimes() = default;

const RooflineTimes::Sums& RooflineTimes::sums_for(std::int64_t samples) const {
  const Network& network = *network_;
  if (network.latest_sums && network.latest == samples) return *network.latest_sums;
  const auto keep = [&](const Sums& sums) -> const Sums& {
    network.latest = samples, network.latest_sums = &sums;
    return sums;
  };
  if (const auto found = sums_.find(samples); found != sums_.end()) return keep(found->second);
  Sums sums;
  double within_s = 0, outside_s = 0;
  for (std::size_t phase = 0; phase < 3; ++phase) sums.all[phase].push_back(0), sums.idle[phase].push_back(0);
  bool first = true;  // the gradient of the samples is not needed
  for (const graph::Unit& unit : network.units) {
    Network::Cost cost;
    const bool last = unit.last == static_cast<std::size_t>(network.graph.logits()) + 1;
    for (std::size_t i = unit.first; i < (last ? network.graph.layers().size() : unit.last); ++i) {
      const Network::Cost layer = network.layer(i, samples, first);
      first = first && network.graph.layers()[i].parameters == 0;
      within_s += layer.within_s, outside_s += layer.outside_s;
      for (std::size_t phase = 0; phase < 3; ++phase)
        cost.seconds[phase] += layer.seconds[phase], cost.launches[phase] += layer.launches[phase];
    }
    for (std::size_t phase = 0; phase < 3; ++phase) {
      const double idle = std::max(0.0, cost.launches[phase] * device_.launch.value - cost.seconds[phase]);
      sums.all[phase].push_back(sums.all[phase].back() + cost.seconds[phase] + idle);
      sums.idle[phase].push_back(sums.idle[phase].back() + idle);
    }
  }
  if (outside_s > 0) sums.unmeasured = outside_s / (within_s + outside_s);
  return keep(sums_.emplace(samples, std::move(sums)).first->second);
}

double RooflineTimes::update_seconds(double elements) const {
  const double bytes = update_bytes(settings_.storage_bytes, settings_.gradient_bytes(), settings_.moments) * elements;
  if (!settings_.offload) return bytes / device_.update_bytes_per_s();
  // Gradients are copied to the host while parameters are copied back, in opposite directions; the update waits for its gradients.
  const double crossing = (settings_.storage_bytes + settings_.gradient_bytes()) * elements;
  return crossing / device_.host_link_or_default().value + bytes / device_.host_updates_or_default().value;
}

double RooflineTimes::seconds(const schedule::Action& action, std::int64_t samples) const {
  const auto elements = amount(action.elements);
  switch (action.work) {
    case Work::none: return 0;
    case Work::update: return update_seconds(elements);
    case Work::encode: return encode_seconds(settings_.compression, elements, device_.memory_bandwidth.value);
    case Work::decode: return decode_seconds(settings_.compression, elements, device_.memory_bandwidth.value);
    default: break;
  }
  return in_phases(sums_for(samples).all, action);
}

double RooflineTimes::idle_seconds(const schedule::Action& action, std::int64_t samples) const {
  switch (action.work) {
    case Work::forward:
    case Work::backward:
    case Work::input_gradients:
    case Work::weight_gradients: return in_phases(sums_for(samples).idle, action);
    default: return 0;
  }
}

Doubt RooflineTimes::doubt(std::span<const std::int64_t> samples) const {
  constexpr double kMuch = 0.1;
  const Speed& speed = network_->speed;
  const bool measured = speed.products.known() || speed.convolutions.known();
  double unmeasured = 0;
  for (const std::int64_t count : samples) unmeasured = std::max(unmeasured, sums_for(count).unmeasured);
  Doubt doubt{.share = std::max(uncertainty_of(speed.flops.source), measured ? 0 : kUnmeasuredProducts) + kOutside * unmeasured};
  if (unmeasured > kMuch)
    doubt.notes.push_back(
        fmt::format("{:.0f}% of the time of matrix products is of sizes that were not measured on {}", 100 * unmeasured, device_.name));
  else if (!measured)
    doubt.notes.push_back(fmt::format(
        "the speed of matrix products on {} was not measured, so peak speeds are assumed; `paceline probe` measures it", device_.name));
  return doubt;
}

double update_bytes(double storage_bytes, double gradient_bytes, int moments) {
  const double rounded = storage_bytes < 4 ? storage_bytes : 0;  // written in addition to the fp32 values, which are read and written
  return gradient_bytes + rounded + 8 + 4.0 * 2 * moments;
}

}  // namespace paceline::perf
