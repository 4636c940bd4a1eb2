#include "paceline/memory/estimate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/memory/share.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::memory {
namespace estimator {  // with a name: Estimator::Kept has members of these types

constexpr std::string_view kNames[] = {"parameters", "gradients", "masters", "moments", "activations", "buffers", "communication", "host"};

std::int64_t divided(std::int64_t bytes, std::int64_t parts) { return (bytes + parts - 1) / parts; }

std::int64_t samples_of_pass(const Plan& plan) { return std::max<std::int64_t>(divided(plan.samples, plan.micro_batches), 1); }

PassSize size_of_pass(const Plan& plan, const Share& share) {
  return {.samples = samples_of_pass(plan),
          .element = plan.product,
          .casts = plan.copies() && !plan.gpu,
          .converts = plan.product < 4 && !plan.gpu,
          .split_loss = share.split_loss,
          .kernels = plan.kernels};
}

using Passes = std::map<std::pair<std::size_t, std::size_t>, PassBytes>;  // by units

/// What the ranks of a pipeline hold, whichever units their stages have.
class Ranks {
 public:
  /// `passes`: a cache for these activations and the plan's recomputation.
  Ranks(const Plan& plan, const Share& share, const Activations& activations, Passes& passes)
      : plan_(plan), share_(share), activations_(activations), passes_(passes) {
    for (int rank = 0; rank < plan.pipeline; ++rank) in_flight_.push_back(in_flight(rank));
  }

  /// Whether a virtual stage may consist of these units without exceeding its part of the limit. Stages differ only in the number of
  /// micro-batches in flight, so the largest possible number is computed once for all stages.
  graph::StageFits fits() const {
    const std::size_t count = share_.units.size() + 1;
    return [this, count, known = std::vector<std::int64_t>(count * count, kUnknown)](std::size_t stage, const graph::Units& units) mutable {
      std::int64_t& most = known[units.first * count + units.last];
      if (most == kUnknown) most = most_in_flight(units);
      return in_flight_[stage % in_flight_.size()] <= most;
    };
  }

  std::vector<RankKind> kinds(const std::vector<graph::Units>& stages) const {
    std::vector<RankKind> kinds;
    for (int rank = 0; rank < plan_.pipeline; ++rank) {
      std::vector<graph::Units> held = graph::held_by(stages, plan_.pipeline, rank);
      const Bytes state_of_held = state(held);
      kinds.push_back(kind(std::move(held), state_of_held, in_flight_[static_cast<std::size_t>(rank)]));
      kinds.back().name = plan_.pipeline == 1 ? "every rank" : fmt::format("stage {} of {}", rank + 1, plan_.pipeline);
    }
    return kinds;
  }

  /// Whether no cut can fit: the permanent memory of all stages together exceeds the limit. Memory in flight is not counted, since it
  /// depends on the cut.
  bool hopeless() const { return state({{0, share_.units.size()}}, /*in_flight=*/false).state() > plan_.limit * plan_.pipeline; }

 private:
  static constexpr std::int64_t kUnknown = -2;

  RankKind kind(std::vector<graph::Units> held, const Bytes& state_of_held, std::int64_t in_flight) const {
    RankKind kind;
    kind.ranks = plan_.data * plan_.tensor;
    const std::int64_t common = sum_in(share_.parameters, held);
    kind.parameters = common + sum_in(share_.spread, held);
    kind.in_flight = in_flight;
    kind.bytes = state_of_held;
    kind.held = std::move(held);
    add_activations(kind);
    kind.bytes[Category::communication] += compressed(common, kind.held);
    if (plan_.data > 1 && plan_.bf16_gradients) kind.bytes[Category::communication] += travelling(common, kind.held);
    return kind;
  }

  /// How many micro-batches in flight these units allow within a virtual stage's part of the limit; below 0 if the rest alone exceeds it.
  /// The state is checked first, since it is the cheapest to compute.
  std::int64_t most_in_flight(const graph::Units& units) const {
    const std::int64_t part = plan_.limit / plan_.chunks;
    const Bytes alone = state({units});
    if (alone.state() > part) return -1;
    const std::int64_t left = part - kind({units}, alone, 0).bytes.total(), each = pass_of(units).held;
    if (left < 0) return -1;
    return each > 0 ? left * plan_.chunks / each : std::numeric_limits<std::int64_t>::max();
  }

  /// The number of micro-batches whose activations a stage holds at the same time.
  std::int64_t in_flight(int rank) const {
    if (plan_.pipeline == 1) return 1;
    const auto& schedule = find(schedule::pipelines(), "parallel.schedule", plan_.schedule).make;
    return schedule.in_flight({.stages = plan_.pipeline, .micro_batches = static_cast<int>(plan_.micro_batches), .chunks = plan_.chunks},
                              rank);
  }

  static std::int64_t sum_in(const std::vector<std::int64_t>& values, const std::vector<graph::Units>& ranges) {
    std::int64_t sum = 0;
    for (const graph::Units& range : ranges)
      for (std::size_t i = range.first; i < range.last; ++i) sum += values[i];
    return sum;
  }

  static std::int64_t largest_in(const std::vector<std::int64_t>& values, const std::vector<graph::Units>& ranges) {
    std::int64_t largest = 0;
    for (const graph::Units& range : ranges)
      for (std::size_t i = range.first; i < range.last; ++i) largest = std::max(largest, values[i]);
    return largest;
  }

  /// For gradients that are sent in bf16: the buffers of a bucket for sending and receiving, and the sum of the rank's own part
  /// (data_parallel/rounded.cpp). Other gradients are sent from the arena and received in it.
  std::int64_t travelling(std::int64_t common, const std::vector<graph::Units>& held) const {
    const std::int64_t bucket = largest_bucket(common, held);
    return 4 * bucket + 4 * divided(bucket, plan_.data);
  }

  /// The elements of a bucket: on a GPU all gradients, or, from ZeRO stage 2 on, those of a unit (strategies/allreduce_choices.cpp).
  std::int64_t largest_bucket(std::int64_t common, const std::vector<graph::Units>& held) const {
    const std::int64_t unit = largest_in(share_.parameters, held);
    if (plan_.zero == 3 || (plan_.zero == 2 && plan_.gpu)) return unit;
    return plan_.gpu ? common : std::min(common, std::max(plan_.bucket / plan_.gradient(), unit));
  }

  std::int64_t compressed(std::int64_t common, const std::vector<graph::Units>& held) const {
    return plan_.compression.bytes(common, largest_bucket(common, held), plan_.data);
  }

  static bool has(const std::vector<graph::Units>& held, std::size_t unit) {
    return std::ranges::any_of(held, [&](const graph::Units& range) { return range.first <= unit && unit < range.last; });
  }

  /// A tied embedding table: the head's stage has a copy of it and a gradient, which it sends to the table's stage.
  void add_copy(const std::vector<graph::Units>& held, Bytes& bytes) const {
    if (!share_.tied || has(held, share_.tied->table) == has(held, share_.tied->head)) return;
    const std::int64_t elements = share_.tied->elements;
    if (has(held, share_.tied->table)) bytes[Category::communication] += plan_.gradient() * elements;
    else bytes[Category::parameters] += plan_.product * elements, bytes[Category::gradients] += plan_.gradient() * elements;
  }

  /// The elements of the table's unit, which are also gathered and released together with the head's.
  std::int64_t borrowed(const std::vector<graph::Units>& held) const {
    const bool both = share_.tied && has(held, share_.tied->table) && has(held, share_.tied->head);
    return both ? share_.parameters[share_.tied->table] : 0;
  }

  /// Parameters, gradients, masters and moments; `in_flight`: including what ZeRO stages 2 and 3 gather and reduce at a time.
  Bytes state(const std::vector<graph::Units>& held, bool in_flight = true) const {
    Bytes bytes;
    const std::int64_t count = sum_in(share_.parameters, held);
    std::array<std::int64_t, 2> units{};  // the two largest
    for (const graph::Units& range : held)
      for (std::size_t i = range.first; i < range.last; ++i) {
        const std::int64_t each = share_.parameters[i];
        if (each > units[0]) units = {each, units[0]};
        else units[1] = std::max(units[1], each);
      }
    const int stage_of_updates = plan_.shared_updates ? std::max(plan_.zero, 1) : plan_.zero;
    const auto shared = [&](int stage, std::int64_t all) { return stage_of_updates >= stage ? divided(all, plan_.data) : all; };
    const bool apart = plan_.data > 1, travels = apart && in_flight;
    const std::int64_t gathered = units[0] + units[1] + borrowed(held);  // of which the rank's own part is always present
    bytes[Category::parameters] = plan_.storage * (shared(3, count) + (travels && plan_.zero >= 3 ? gathered - gathered / plan_.data : 0));
    bytes[Category::parameters] = std::min(bytes[Category::parameters], plan_.storage * count);
    // In addition to its own part, a rank holds under stage 2 the unit whose backward pass runs, a bucket that is not full yet and one that
    // is being reduced; under stage 3, units.
    const std::int64_t bucket = plan_.bucket / plan_.gradient();
    const std::int64_t largest = plan_.gpu ? units[0] + units[1] : plan_.zero == 2 ? units[0] + 2 * bucket : units[0];
    const std::int64_t reduced = std::min(count, largest + borrowed(held));
    const std::int64_t master = (plan_.storage < 4 ? 4 : 0) + (plan_.gradient() < 4 ? 4 : 0);
    const bool kept_there = (plan_.gradient() < 4 || plan_.offload) && apart && plan_.zero >= 2;  // sums of the rank's own gradients
    bytes[Category::gradients] = plan_.gradient() * ((kept_there ? 0 : shared(2, count)) + (travels && plan_.zero >= 2 ? reduced : 0));
    bytes[Category::masters] = master * shared(1, count);
    bytes[Category::moments] = 4 * plan_.moments * shared(1, count);
    bytes[Category::buffers] += 4 * sum_in(share_.statistics, held);
    add_copy(held, bytes);
    // Parameters that only this worker has. From stage 2 on, their gradients are moved to where they are summed, unit by unit.
    const std::int64_t own = sum_in(share_.spread, held), moved = plan_.zero >= 2 ? largest_in(share_.spread, held) : 0;
    bytes[Category::parameters] += plan_.storage * own;
    bytes[Category::gradients] += plan_.gradient() * ((kept_there ? 0 : own) + moved);
    bytes[Category::masters] += master * own;
    bytes[Category::moments] += 4 * plan_.moments * own;
    if (plan_.offload) {
      bytes[Category::host] = (4 * plan_.moments + 8) * (shared(1, count) + own);
      bytes[Category::masters] = bytes[Category::moments] = 0;
    }
    // The copies that matrix products read; under stage 3, a copy lives as long as its unit is gathered.
    const std::int64_t copied = travels && plan_.zero >= 3 ? std::min(count, gathered) : count;
    if (plan_.copies()) bytes[Category::parameters] += plan_.product * (copied + own);
    return bytes;
  }

  /// What is sent to and received from the experts of the largest such layer: the features of every slot.
  std::int64_t exchanged(const graph::Units& units) const {
    const std::int64_t most = plan_.data > 1 ? largest_in(share_.slots, {units}) : 0;
    return 2 * most * samples_of_pass(plan_) * plan_.product;
  }

  void add_activations(RankKind& kind) const {
    std::int64_t held = 0, most = 0, arrives = 0;
    for (const graph::Units& units : kind.held) {
      const PassBytes& pass = pass_of(units);
      held += pass.held, most = std::max(most, pass.peak - pass.held);
      if (units.first == 0 && plan_.gpu) kind.bytes[Category::buffers] += plan_.samples * graph::elements(share_.layers.front().output) * 4;
      kind.bytes[Category::communication] += exchanged(units);
      if (units.first > 0) arrives = std::max(arrives, activations_.input(units.first));
      if (units.last < share_.units.size()) arrives = std::max(arrives, activations_.input(units.last));
    }
    kind.bytes[Category::communication] += arrives;  // one message at a time (pipeline/borders.h)
    kind.bytes[Category::activations] = divided(kind.in_flight * held, plan_.chunks);
    kind.bytes[Category::buffers] += most;
  }

  const PassBytes& pass_of(const graph::Units& units) const {
    const auto [found, missing] = passes_.try_emplace({units.first, units.last});
    if (missing) found->second = pass_bytes(activations_, units.first, units.last, plan_.recompute);
    return found->second;
  }

  const Plan& plan_;
  const Share& share_;
  const Activations& activations_;
  Passes& passes_;                       // a search for cuts asks for the same units as part of many stages
  std::vector<std::int64_t> in_flight_;  // by rank
};

}  // namespace estimator

using namespace estimator;

std::string_view name_of(Category category) { return kNames[static_cast<std::size_t>(category)]; }

std::int64_t Bytes::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : of) sum += bytes;
  return sum - (*this)[Category::host];
}

std::int64_t Bytes::state() const {
  return of[static_cast<std::size_t>(Category::parameters)] + of[static_cast<std::size_t>(Category::gradients)] +
         of[static_cast<std::size_t>(Category::masters)] + of[static_cast<std::size_t>(Category::moments)];
}

struct Estimator::Kept {
  const graph::Graph& graph;
  std::vector<graph::UnitCost> costs = graph::counted_costs(graph);
  bool spreads = std::ranges::any_of(graph.parameters(), &graph::Parameter::spread);

  using ShareKey = std::tuple<int, bool, std::string, int, std::int64_t>;
  using PassKey = std::pair<ShareKey, PassSize>;
  std::map<ShareKey, Share> shares = {};
  std::map<PassKey, Activations> activations = {};
  std::map<std::pair<PassKey, std::string>, Passes> passes = {};
  std::map<std::tuple<int, int, std::vector<double>>, std::vector<graph::Units>> fastest = {};  // cuts, by ranks, chunks and times

  Ranks ranks(const Plan& plan) {
    const bool hybrid = plan.hybrid != "none" && plan.data > 1;
    const ShareKey key{plan.tensor, plan.sequence, hybrid ? plan.hybrid : "", hybrid || spreads ? plan.data : 1,
                       hybrid ? (plan.batch > 0 ? plan.batch : plan.samples * plan.data) : 0};
    auto share = shares.find(key);
    if (share == shares.end()) share = shares.emplace(key, share_of(graph, plan)).first;
    const PassSize size = size_of_pass(plan, share->second);
    const PassKey pass{key, size};
    const auto kept = activations.try_emplace(pass, share->second.layers, share->second.units, size).first;
    return {plan, share->second, kept->second, passes[{pass, plan.recompute}]};
  }

  std::vector<graph::Units> cut(const Plan& plan, const Ranks& ranks) {
    const auto timed = [&] {
      ensure(plan.times.empty() || plan.times.size() == costs.size(), "every unit was measured");
      std::vector<graph::UnitCost> made = costs;
      for (std::size_t unit = 0; unit < plan.times.size(); ++unit) made[unit].time = plan.times[unit];
      return made;
    };
    const graph::StageCount count{.ranks = plan.pipeline, .chunks = plan.chunks};
    const std::tuple key(plan.pipeline, plan.chunks, plan.times);
    auto found = fastest.find(key);
    if (found == fastest.end()) found = fastest.emplace(key, graph::cut_stages(timed(), count)).first;
    if (plan.limit == 0 || largest(ranks.kinds(found->second)).bytes.total() <= plan.limit || ranks.hopeless()) return found->second;
    std::vector<graph::Units> fitting = graph::cut_stages(timed(), count, ranks.fits());
    return fitting.empty() ? found->second : fitting;
  }
};

Estimator::Estimator(const graph::Graph& graph) : kept_(std::make_unique<Kept>(Kept{.graph = graph})) {}
Estimator::~Estimator() = default;

std::vector<graph::Units> Estimator::cut_stages(const Plan& plan) const { return kept_->cut(plan, kept_->ranks(plan)); }

std::vector<RankKind> Estimator::estimate(const Plan& plan, const std::vector<graph::Units>& stages) const {
  const Ranks ranks = kept_->ranks(plan);
  return ranks.kinds(stages.empty() ? kept_->cut(plan, ranks) : stages);
}

std::vector<graph::Units> cut_stages(const graph::Graph& graph, const Plan& plan) { return Estimator(graph).cut_stages(plan); }

std::vector<RankKind> estimate(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages) {
  return Estimator(graph).estimate(plan, stages);
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
