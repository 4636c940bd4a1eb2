#include "paceline/memory/estimate.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/graph/tensor_split.h"

namespace paceline::memory {
namespace {

struct CategoryName {
  std::string_view name, help;
};
constexpr CategoryName kNames[] = {
    {"parameters", "as they are stored"},
    {"gradients", "as they are stored"},
    {"masters", "fp32 copies of parameters that are stored in 16 bits"},
    {"moments", "of the optimizer"},
    {"activations", "what forward passes keep until they go back"},
    {"buffers", "what passes and the loss need on top, the batch, 16-bit copies for the products"},
    {"communication", "what is on its way to other ranks"},
};

/// What one rank of the tensor axis has of the network.
struct Share {
  std::vector<graph::Layer> layers;  // up to the logits
  std::vector<graph::Unit> units;
  std::vector<std::int64_t> parameters, statistics;  // by unit: elements
  std::vector<double> cost;                          // by unit: multiplications
};

Share share_of(const graph::Graph& graph, const Plan& plan) {
  Share share{.layers = {}, .units = graph::units_of(graph), .parameters = {}, .statistics = {}, .cost = {}};
  const graph::TensorSplit split = graph::tensor_split(graph, plan.tensor, plan.sequence && plan.tensor > 1);
  const auto end = static_cast<std::size_t>(graph.logits()) + 1;
  for (std::size_t i = 0; i < end; ++i) share.layers.push_back(graph::local_layer(graph, split, i, 0));
  for (const graph::Unit& unit : share.units) {
    share.parameters.push_back(0), share.statistics.push_back(0), share.cost.push_back(0);
    for (std::size_t i = unit.first; i < unit.last; ++i) share.cost.back() += 3.0 * static_cast<double>(graph.layers()[i].macs) + 1;
  }
  for (const graph::LocalTensor& tensor_ : graph::local_tensors(graph, split, 0)) {
    const auto layer = static_cast<std::size_t>(tensor_.whole.layer);
    const auto unit = std::ranges::find_if(share.units, [&](const graph::Unit& each) { return layer < each.last; });
    auto& sums = tensor_.whole.trainable ? share.parameters : share.statistics;
    sums[static_cast<std::size_t>(unit - share.units.begin())] += graph::elements(tensor_.shape);
  }
  return share;
}

/// Where stages begin, so that the costliest is as cheap as it can be.
std::vector<std::size_t> cut(const std::vector<double>& cost, std::size_t stages) {
  const std::size_t units = cost.size();
  if (stages > units)
    throw ConfigError(fmt::format("{} stages need a unit each, and the network has {}; use parallel.pipeline={}", stages, units, units));
  // best[k][n]: of the first n units in k stages
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(units + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(units + 1, 0));
  best[0][0] = 0;
  for (std::size_t k = 1; k <= stages; ++k)
    for (std::size_t n = k; n <= units; ++n) {
      double last = 0;
      for (std::size_t begin = n; begin-- > k - 1;) {
        last += cost[begin];
        if (const double slowest = std::max(best[k - 1][begin], last); slowest < best[k][n]) best[k][n] = slowest, from[k][n] = begin;
      }
    }
  std::vector<std::size_t> begins(stages);
  for (std::size_t k = stages, n = units; k > 0; --k) begins[k - 1] = n = from[k][n];
  return begins;
}

/// Micro-batches of which a stage holds activations at once.
std::int64_t in_flight(const Plan& plan, int stage) {
  if (plan.pipeline == 1) return 1;
  if (plan.schedule == "gpipe") return plan.micro_batches;
  return std::min<std::int64_t>(plan.micro_batches, plan.pipeline - stage);
}

std::int64_t divided(std::int64_t bytes, int parts) { return (bytes + parts - 1) / parts; }

std::int64_t sum_in(const std::vector<std::int64_t>& values, std::size_t first, std::size_t last) {
  std::int64_t sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += values[i];
  return sum;
}

/// The state: parameters, gradients, masters and moments of units [first, last).
void add_state(Bytes& bytes, const Share& share, const Plan& plan, std::size_t first, std::size_t last) {
  const std::int64_t count = sum_in(share.parameters, first, last);
  std::vector<std::int64_t> units(share.parameters.begin() + static_cast<std::ptrdiff_t>(first),
                                  share.parameters.begin() + static_cast<std::ptrdiff_t>(last));
  std::ranges::sort(units, std::greater{});
  units.resize(std::max<std::size_t>(units.size(), 2), 0);
  const auto shared = [&](int stage, std::int64_t all) { return plan.zero >= stage ? divided(all, plan.data) : all; };
  const bool apart = plan.data > 1;
  bytes[Category::parameters] = plan.storage * (shared(3, count) + (apart && plan.zero >= 3 ? units[0] + units[1] : 0));
  bytes[Category::parameters] = std::min(bytes[Category::parameters], plan.storage * count);
  // Stage 2 reduces buckets, which may be all of a small model, beside the own part; stage 3 units.
  const std::int64_t bucket = std::min(count, std::max(plan.bucket / plan.storage, units[0]));
  bytes[Category::gradients] = plan.storage * (shared(2, count) + (apart && plan.zero >= 2 ? (plan.zero == 2 ? bucket : units[0]) : 0));
  bytes[Category::masters] = plan.storage < 4 ? 4 * shared(1, count) : 0;
  bytes[Category::moments] = 4 * plan.moments * shared(1, count);
  bytes[Category::buffers] += 4 * sum_in(share.statistics, first, last);
  if (plan.product != plan.storage) bytes[Category::buffers] += plan.product * count;  // what the products read
}

void add_activations(RankKind& kind, const Share& share, const Plan& plan) {
  const std::int64_t samples = std::max<std::int64_t>((plan.samples + plan.micro_batches - 1) / plan.micro_batches, 1);
  const Activations activations(share.layers, share.units, {.samples = samples, .element = plan.product});
  const PassBytes pass = pass_bytes(activations, kind.first, kind.last, plan.recompute);
  kind.bytes[Category::activations] = kind.in_flight * pass.held;
  kind.bytes[Category::buffers] += pass.peak - pass.held;
  const bool ends = kind.last == share.units.size();
  const std::int64_t sample = graph::elements(share.layers.front().output) * 4;
  if (kind.first == 0) kind.bytes[Category::buffers] += plan.samples * sample;
  if (kind.first > 0) kind.bytes[Category::communication] += 2 * activations.input(kind.first);
  if (!ends) kind.bytes[Category::communication] += 2 * activations.input(kind.last);
}

}  // namespace

std::string_view name_of(Category category) { return kNames[static_cast<std::size_t>(category)].name; }
std::string_view help_of(Category category) { return kNames[static_cast<std::size_t>(category)].help; }

std::int64_t Bytes::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : of) sum += bytes;
  return sum;
}

std::int64_t Bytes::state() const {
  return of[static_cast<std::size_t>(Category::parameters)] + of[static_cast<std::size_t>(Category::gradients)] +
         of[static_cast<std::size_t>(Category::masters)] + of[static_cast<std::size_t>(Category::moments)];
}

std::vector<RankKind> estimate(const graph::Graph& graph, const Plan& plan, const std::vector<std::size_t>& stage_begins) {
  const Share share = share_of(graph, plan);
  const std::vector<std::size_t> begins = stage_begins.empty() ? cut(share.cost, static_cast<std::size_t>(plan.pipeline)) : stage_begins;
  std::vector<RankKind> kinds;
  for (std::size_t stage = 0; stage < begins.size(); ++stage) {
    RankKind kind;
    kind.name = begins.size() == 1 ? "every rank" : fmt::format("stage {} of {}", stage + 1, begins.size());
    kind.ranks = plan.data * plan.tensor;
    kind.first = begins[stage], kind.last = stage + 1 < begins.size() ? begins[stage + 1] : share.units.size();
    kind.parameters = sum_in(share.parameters, kind.first, kind.last);
    kind.in_flight = in_flight(plan, static_cast<int>(stage));
    add_state(kind.bytes, share, plan, kind.first, kind.last);
    add_activations(kind, share, plan);
    if (plan.data > 1) kind.bytes[Category::communication] += std::min(plan.bucket, plan.storage * kind.parameters);
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

const RankKind& largest(const std::vector<RankKind>& kinds) {
  return *std::ranges::max_element(kinds, {}, [](const RankKind& kind) { return kind.bytes.total(); });
}

SlidesCount slides_count(std::int64_t parameters, int zero, int workers) {
  const auto shared = [&](int stage, std::int64_t bytes) { return zero >= stage ? divided(bytes, workers) : bytes; };
  return {shared(3, 2 * parameters), shared(2, 2 * parameters), shared(1, 16 * parameters)};
}

std::string readable(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  const int digits = unit == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

}  // namespace paceline::memory
