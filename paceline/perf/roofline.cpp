#include "paceline/perf/roofline.h"

#include <algorithm>

namespace paceline::perf {
namespace {

constexpr double kElement = 4;  // δ: bytes of an fp32 number

double number(std::int64_t count) { return static_cast<double>(count); }

void add_product(LayerWork& work, std::int64_t out, std::int64_t in, std::int64_t samples, std::int64_t count) {
  work.products[0].push_back({out, samples, in, count});
  work.products[1].push_back({in, samples, out, count});
  work.products[2].push_back({out, in, samples, count});
}

/// The two T × T products of every head. They have no weights, so their gradients take twice as many products.
void add_scores(LayerWork& work, std::int64_t positions, std::int64_t head_width, std::int64_t count) {
  work.products[0].push_back({positions, positions, head_width, count});
  work.products[0].push_back({positions, head_width, positions, count});
  work.products[1].push_back({positions, positions, head_width, 2 * count});
  work.products[1].push_back({positions, head_width, positions, 2 * count});
}

/// How many rows of a matrix product one sample gives: positions of a sequence, pixels of an image.
std::int64_t rows(const graph::Shape& shape, bool image) {
  if (image) return shape.at(1) * shape.at(2);
  return graph::elements(shape) / shape.back();
}

LayerWork work_of_layer(const graph::Layer& layer, const graph::Shape& input, std::int64_t batch) {
  LayerWork work{.name = layer.name, .parameters = layer.parameters};
  std::int64_t weights = 0;
  if (layer.kind == graph::Kind::conv) {
    const std::int64_t in = input.at(0) / layer.groups * layer.kernel_h * layer.kernel_w;
    add_product(work, layer.channels / layer.groups, in, batch * rows(layer.output, true), layer.groups);
    weights = layer.channels * in;
  } else if (layer.kind == graph::Kind::fc) {
    add_product(work, layer.channels, input.back(), batch * rows(input, false), 1);
    weights = layer.channels * input.back();
  } else if (layer.kind == graph::Kind::experts) {  // they compute all their slots, including empty ones
    const std::int64_t width = input.back(), slots = batch * graph::expert_slots(layer);
    add_product(work, layer.experts, width, batch * rows(input, false), 1);
    add_product(work, layer.channels, width, slots, layer.experts);
    add_product(work, width, layer.channels, slots, layer.experts);
    weights = layer.experts * width * (1 + 2 * layer.channels);
  } else {  // attention
    const std::int64_t width = input.back(), positions = rows(input, false);
    add_product(work, 3 * width, width, batch * positions, 1);
    add_product(work, width, width, batch * positions, 1);
    add_scores(work, positions, width / layer.heads, batch * layer.heads);
    weights = 4 * width * width;
  }
  const double out = number(batch * graph::elements(layer.output)), in = number(batch * graph::elements(input));
  work.outputs = {out, in, number(weights)};
  work.tensors.fill(out + in + number(weights));
  return work;
}

bool multiplies(const graph::Layer& layer) {
  using graph::Kind;
  return layer.kind == Kind::conv || layer.kind == Kind::fc || layer.kind == Kind::attention || layer.kind == Kind::experts;
}

}  // namespace

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"FP", "GC", "WU"};
  return kNames[static_cast<int>(phase)];
}

std::string_view name_of(OutputTraffic traffic) { return traffic == OutputTraffic::once ? "mn" : "2mn"; }

double Roofline::intensity(const Gemm& gemm) const {
  const double m = number(std::min(gemm.m, blocks.m)), n = number(std::min(gemm.n, blocks.n)), k = number(std::min(gemm.k, blocks.k));
  const double written = traffic == OutputTraffic::once ? 1 : 2;
  return 2 * m * n * k / ((written * m * n + m * k + k * n) * kElement);
}

double Roofline::seconds(const Gemm& gemm) const { return gemm.flops() / std::min(bytes_per_s * intensity(gemm), flops_per_s); }

Roofline roofline_of(const Device& device, OutputTraffic traffic) {
  return {.flops_per_s = device.flops.value, .bytes_per_s = device.memory_bandwidth.value, .blocks = device.blocks, .traffic = traffic};
}

double LayerWork::flops(Phase phase) const {
  double sum = 0;
  for (const Gemm& gemm : of(phase)) sum += gemm.flops();
  return sum;
}

double LayerWork::seconds(Phase phase, const Roofline& roofline) const {
  double sum = 0;
  for (const Gemm& gemm : of(phase)) sum += roofline.seconds(gemm);
  return sum;
}

std::optional<LayerWork> layer_work(const graph::Graph& graph, std::size_t layer, std::int64_t batch) {
  const graph::Layer& of = graph.layers().at(layer);
  if (!multiplies(of)) return std::nullopt;
  return work_of_layer(of, graph.layers()[static_cast<std::size_t>(of.inputs.front())].output, batch);
}

std::vector<LayerWork> work_of(const graph::Graph& graph, std::int64_t batch) {
  std::vector<LayerWork> all;
  std::int64_t before = 0;  // parameters of the layers before the first one with products
  for (std::size_t i = 0; i < graph.layers().size(); ++i) {
    if (auto work = layer_work(graph, i, batch)) all.push_back(std::move(*work));
    else (all.empty() ? before : all.back().parameters) += graph.layers()[i].parameters;
  }
  if (!all.empty()) {
    all.front().parameters += before;
    // The gradient of the samples is not needed. That of an embedding is, so a first layer after one computes its input's gradient.
    if (before == 0) all.front().products[static_cast<std::size_t>(Phase::gradient)].clear();
  }
  return all;
}

Intensity intensity_of(const std::vector<LayerWork>& work, Phase phase, const Roofline& roofline) {
  double flops = 0, seconds = 0, bound = 0, blocked = 0, whole = 0;
  const auto index = static_cast<std::size_t>(phase);
  for (const LayerWork& layer : work) {
    if (layer.of(phase).empty()) continue;
    for (const Gemm& gemm : layer.of(phase)) {
      const double took = roofline.seconds(gemm), intensity = roofline.intensity(gemm);
      flops += gemm.flops(), seconds += took, blocked += gemm.flops() / intensity;
      if (intensity < roofline.ridge()) bound += took;
    }
    whole += (layer.tensors[index] + (roofline.traffic == OutputTraffic::twice ? layer.outputs[index] : 0)) * kElement;
  }
  return {.blocked = flops / blocked, .whole = flops / whole, .flops_per_s = flops / seconds, .memory_bound = bound / seconds};
}

}  // namespace paceline::perf
