#include "paceline/perf/cost.h"

#include <algorithm>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/perf/collective_costs.h"
#include "paceline/perf/placement.h"
#include "paceline/perf/play.h"
#include "paceline/perf/servers.h"
#include "paceline/perf/uncertainty.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using Axis = Action::Axis;
using Exchange = Action::Exchange;
using Work = Action::Work;

constexpr Axis kAxes[] = {Axis::data, Axis::pipeline, Axis::tensor, Axis::server};

bool is_collective(Exchange exchange) { return exchange <= Exchange::barrier; }
schedule::Collective collective_of(Exchange exchange) { return static_cast<schedule::Collective>(exchange); }
static_assert(static_cast<int>(Exchange::barrier) == static_cast<int>(schedule::Collective::barrier));

double bytes_of(const Action& action) { return static_cast<double>(action.elements) * action.element_bytes; }

/// What one action takes, and sends.
struct Price {
  double seconds = 0, bytes = 0;
};

/// The prices of one step's communication. Programs repeat the same few exchanges, so each is looked up once.
class Prices {
 public:
  Prices(const Cluster& cluster, const schedule::ProgramSettings& settings, const CostOptions& options, CollectiveCosts& collectives)
      : place_(cluster, settings), settings_(settings), options_(options), collectives_(collectives) {
    for (const Axis axis : kAxes) costs_[static_cast<std::size_t>(axis)] = place_.costs(axis);
  }
  const Placement& place() const { return place_; }

  Price of(const Action& action, int stage) {
    if (!is_collective(action.exchange)) return message(action, stage);
    const Key key{action.exchange, action.axis, action.elements, action.element_bytes};
    const auto [found, is_new] = known_.try_emplace(key);
    if (is_new || found->second.algorithm != action.algorithm) {
      const CollectiveCost& cost = collective(action);
      found->second = {action.algorithm, {cost.seconds, cost.sent_bytes}};
    }
    return found->second.price;
  }

  const CollectiveCost& collective(const Action& action) {
    return collectives_.of(costs_[static_cast<std::size_t>(action.axis)], collective_of(action.exchange), action.algorithm,
                           place_.size(action.axis), bytes_of(action), place_.contention(action.axis));
  }

  ServerLoad load(double bytes) const {
    const schedule::Link worker = place_.to_server(), server = place_.server_link();
    const std::int64_t links =
        options_.server_hosts > 0 ? std::min<std::int64_t>(options_.server_hosts, settings_.servers) : settings_.servers;
    return {.workers = settings_.data,
            .servers = links,
            .bytes = bytes,
            .worker_bytes_per_s = worker.bytes_per_s,
            .server_bytes_per_s = server.bytes_per_s,
            .alpha_s = worker.alpha_s};
  }

 private:
  struct Key {
    Exchange exchange;
    Axis axis;
    std::int64_t elements;
    double element_bytes;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const auto kind = static_cast<std::size_t>(key.exchange) * 4 + static_cast<std::size_t>(key.axis);
      return std::hash<std::int64_t>()(key.elements) * 31 + std::hash<double>()(key.element_bytes) * 17 + kind;
    }
  };
  struct Known {
    std::string algorithm;
    Price price;
  };

  Price message(const Action& action, int stage) const {
    const double bytes = bytes_of(action);
    switch (action.exchange) {
      case Exchange::send: {
        const schedule::Link link =
            action.axis == Axis::pipeline ? place_.between_stages(stage, action.peer) : place_.to_neighbour(action.axis, action.peer);
        return {link.alpha_s + bytes / link.bytes_per_s, bytes};
      }
      case Exchange::pull:
      case Exchange::push: {
        const ServerLoad all = load(bytes);
        if (!options_.asynchronous) return {incast_seconds(all), bytes};
        return {all.alpha_s + std::max(bytes / all.worker_bytes_per_s, visit_seconds(all)), bytes};
      }
      default: return {};
    }
  }

  Placement place_;
  const schedule::ProgramSettings& settings_;
  CostOptions options_;
  CollectiveCosts& collectives_;
  std::array<schedule::Costs, kProgramAxes> costs_;
  std::unordered_map<Key, Known, Hash> known_;
};

void add_to(Split& split, const Action& action, double seconds) {
  if (action.kind == Action::Kind::communicate) split.exposed[action.axis] += seconds;
  else if (action.work == Work::update) split.optimizer += seconds;
  else if (action.work == Work::encode || action.work == Work::decode) split.encoding += seconds;
  else if (action.kind == Action::Kind::compute) split.compute += seconds;
  else split.bubble += seconds;
}

/// One stage's time: what its compute lane did, and while it did nothing, what it waited for, back along the actions that let one another
/// begin.
class Attribution {
 public:
  Attribution(const Play& play, std::span<const schedule::Program> stages, int stage)
      : play_(play),
        stages_(stages),
        program_(stages[static_cast<std::size_t>(stage)]),
        first_(play.first[static_cast<std::size_t>(stage)]) {}

  Split split() const {
    Split split;
    double free = 0, ended = 0;
    int last = -1;
    for (int i = 0; i < std::ssize(program_); ++i) {
      const PlayedAction& played = at(first_ + i);
      if (played.end >= ended) ended = played.end, last = first_ + i;
      const Action& action = program_[static_cast<std::size_t>(i)];
      if (action.lane != Action::Lane::compute) continue;
      explain(split, free, played.begin, played.because);
      // A receive on this lane waits for its send.
      add_to(split, action, played.end - played.begin);
      free = played.end;
    }
    explain(split, free, ended, last);
    split.bubble += play_.seconds - ended;
    return split;
  }

 private:
  const PlayedAction& at(int action) const { return play_.actions[static_cast<std::size_t>(action)]; }

  const Action& action_at(int action) const {
    const int stage = play_.stage_of(action);
    return stages_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(action - play_.first[static_cast<std::size_t>(stage)])];
  }

  void explain(Split& split, double from, double until, int because) const {
    while (until > from && because >= 0) {
      const PlayedAction& played = at(because);
      const double began = std::max(from, std::min(until, played.begin));
      const int own = because - first_;
      if (own < 0 || own >= std::ssize(program_)) {  // another stage's: its message is on its way, or it is not ready yet
        if (action_at(because).kind == Action::Kind::communicate) split.exposed[Axis::pipeline] += until - began, until = began;
        break;
      }
      add_to(split, program_[static_cast<std::size_t>(own)], until - began);
      until = began, because = played.because;
    }
    split.bubble += std::max(0.0, until - from);
  }

  const Play& play_;
  std::span<const schedule::Program> stages_;
  const schedule::Program& program_;
  int first_;
};

std::string bottleneck_of(const Split& split) {
  std::vector<std::pair<double, std::string>> parts{{split.compute, "compute"},
                                                    {split.optimizer, "optimizer"},
                                                    {split.encoding, "encoding"},
                                                    {split.bubble, "bubble"},
                                                    {split.straggling, "stragglers"}};
  for (const Axis axis : kAxes) parts.emplace_back(split.exposed[axis], std::string(name_of(axis)) + " communication");
  return std::ranges::max_element(parts, {}, &std::pair<double, std::string>::first)->second;
}

void add_mean(Split& mean, const Split& other, double weight) {
  mean.compute += other.compute * weight, mean.optimizer += other.optimizer * weight, mean.encoding += other.encoding * weight;
  mean.bubble += other.bubble * weight, mean.straggling += other.straggling * weight;
  for (const Axis axis : kAxes) mean.exposed[axis] += other.exposed[axis] * weight;
}

void make_asynchronous(StepCost& step, std::span<const schedule::Program> stages, const Prices& prices, std::int64_t workers) {
  double visits[2] = {0, 0};  // pulls and pushes leave and enter a server by wires of their own
  for (const schedule::Program& program : stages)
    for (const Action& action : program) {
      if (action.exchange != Exchange::pull && action.exchange != Exchange::push) continue;
      const double visit = visit_seconds(prices.load(bytes_of(action)));
      visits[action.exchange == Exchange::push] += visit;
    }
  const double visit = std::max(visits[0], visits[1]);
  const Asynchronous queue = asynchronous(workers, step.seconds - visit, visit);
  for (StageCost& stage : step.stages) stage.split.exposed[Axis::server] += queue.waiting_s;
  step.split.exposed[Axis::server] += queue.waiting_s;
  step.seconds = queue.cycle_s, step.steps_per_s = queue.updates_per_s, step.staleness = queue.staleness;
}

}  // namespace

CostModel::CostModel(const Cluster& cluster) : cluster_(cluster), collectives_(std::make_unique<CollectiveCosts>(cluster)) {}
CostModel::~CostModel() = default;

StepCost CostModel::cost(std::span<const schedule::Program> stages, const schedule::ProgramSettings& settings, const ComputeTimes& times,
                         const CostOptions& options) const {
  if (std::ssize(stages) != settings.pipeline) throw InternalError("a step has one program for each stage of the pipeline");
  Prices prices(cluster_, settings, options, *collectives_);
  StepCost step;
  step.stages.resize(stages.size());
  std::vector<double> durations;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    double idle = 0;  // of the device, behind the last pass
    for (const Action& action : stages[stage]) {
      double seconds = 0;
      if (action.kind == Action::Kind::compute) {
        const auto parts = static_cast<int>(std::max<std::int64_t>(settings.micro_batches, 1));
        const std::int64_t samples = schedule::part(settings.samples, parts, action.micro_batch).size();
        seconds = times.seconds(action, samples), idle = times.idle_seconds(action, samples);
      } else if (action.kind == Action::Kind::communicate) {
        const Price price = prices.of(action, static_cast<int>(stage));
        seconds = price.seconds;
        step.stages[stage].communication[action.axis] += seconds, step.stages[stage].bytes[action.axis] += price.bytes;
        if (action.axis == Axis::tensor && action.lane == Action::Lane::compute) {
          const double hidden = std::min(idle, seconds);
          seconds -= hidden, idle -= hidden;
        }
      }
      durations.push_back(seconds);
    }
  }
  const Play played = play(stages, durations, cluster_.device.slowdown_factor());
  step.seconds = played.seconds;
  const double late = options.asynchronous ? 1 : expected_maximum(options.jitter, prices.place().ranks());
  double slowest = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    StageCost& cost = step.stages[stage];
    cost.split = Attribution(played, stages, static_cast<int>(stage)).split();
    slowest = std::max(slowest, cost.split.compute);
    for (const Axis axis : kAxes) {
      step.communication[axis] = std::max(step.communication[axis], cost.communication[axis]);
      step.bytes[axis] = std::max(step.bytes[axis], cost.bytes[axis]);
    }
  }
  // The stage that computes longest makes the others wait for its slowest rank.
  for (StageCost& cost : step.stages) {
    cost.split.straggling = (late - 1) * slowest;
    add_mean(step.split, cost.split, 1 / static_cast<double>(stages.size()));
  }
  step.seconds += (late - 1) * slowest;
  step.steps_per_s = 1 / step.seconds;
  if (options.asynchronous) make_asynchronous(step, stages, prices, settings.data);
  const Split& split = step.split;
  double error = times.uncertainty() * (split.compute + split.optimizer + split.encoding + split.bubble + split.straggling);
  for (const Axis axis : kAxes) error += uncertainty_of(prices.place().source(axis)) * split.exposed[axis];
  step.low = std::max(0.0, step.seconds - error), step.high = step.seconds + error;
  step.bottleneck = bottleneck_of(split);
  step.notes = times.notes();
  return step;
}

double CostModel::collective_seconds(const Action& action, const schedule::ProgramSettings& settings) const {
  return Prices(cluster_, settings, {}, *collectives_).collective(action).seconds;
}

std::string CostModel::algorithm_of(const Action& action, const schedule::ProgramSettings& settings) const {
  return std::string(Prices(cluster_, settings, {}, *collectives_).collective(action).algorithm);
}

StepCost cost_of(std::span<const schedule::Program> stages, const schedule::ProgramSettings& settings, const ComputeTimes& times,
                 const Cluster& cluster, const CostOptions& options) {
  return CostModel(cluster).cost(stages, settings, times, options);
}

}  // namespace paceline::perf
