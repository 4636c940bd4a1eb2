#include "paceline/perf/step_cost.h"

#include <algorithm>
#include <unordered_map>

#include "paceline/base/error.h"
#include "paceline/perf/attribution.h"
#include "paceline/perf/played_step.h"
#include "paceline/perf/prices.h"

namespace paceline::perf {
namespace {

using schedule::Action;
using Axis = Action::Axis;
using Exchange = Action::Exchange;

/// The durations of actions, and what they add to the costs of a step.
class Durations {
 public:
  Durations(const schedule::ProgramSettings& settings, const ComputeTimes& times, Prices& prices, double crowd)
      : times_(times), prices_(prices), crowd_(crowd) {
    for (int micro_batch = 0; micro_batch < settings.parts(); ++micro_batch) samples_of_.push_back(settings.samples_of(micro_batch));
  }

  /// Appends those of a stage to `durations`, and adds its communication to `step`.
  void add(std::vector<double>& durations, PlayedStep& step, int rank, const schedule::Program& program) {
    StageCost& stage = step.stages[static_cast<std::size_t>(rank)];
    double& busy = step.busy[static_cast<std::size_t>(rank)];
    idle_ = 0;
    for (const Action& action : program) {
      const double seconds = action.parts ? folded(action, rank, stage, step.doubt) : single(action, rank, stage, step.doubt);
      durations.push_back(seconds);
      if (action.lane == Action::Lane::compute) busy += seconds;
    }
  }

  const FoldedSplits& folded_splits() const { return splits_; }

 private:
  struct FoldedPass {
    double seconds = 0, idle = 0;
    StageCost cost;
    TalkDoubt doubt;
  };

  double single(const Action& action, int rank, StageCost& stage, TalkDoubt& doubt) {
    if (action.kind == Action::Kind::compute) {
      const std::int64_t samples = samples_of_.at(static_cast<std::size_t>(action.micro_batch));
      idle_ = times_.idle_seconds(action, samples);
      return times_.seconds(action, samples) * (action.lane == Action::Lane::compute ? 1 : crowd_);
    }
    if (action.kind != Action::Kind::communicate) return 0;
    const Price price = prices_.of(action, rank, times_);
    doubt.add(action.axis, price);
    const double seconds = price.seconds + crowd_ * prices_.page_seconds(action);
    stage.communication[action.axis] += seconds, stage.bytes[action.axis] += price.bytes;
    if (action.axis != Axis::tensor || action.lane != Action::Lane::compute) return seconds;
    const double hidden = std::min(idle_, seconds);
    idle_ -= hidden;
    return seconds - hidden;
  }

  double folded(const Action& action, int rank, StageCost& stage, TalkDoubt& doubt) {
    const auto [found, missing] = passes_.try_emplace(action.parts.get());
    FoldedPass& pass = found->second;
    if (missing) {
      Split& split = splits_[action.parts.get()];
      idle_ = 0;
      for (const Action& part : *action.parts) {
        const double seconds = single(part, rank, pass.cost, pass.doubt);
        pass.seconds += seconds;
        add_to(split, part, seconds);
      }
      pass.idle = idle_;
    }
    idle_ = pass.idle;
    doubt.add(pass.doubt);
    for (const Axis axis : kAxesOfPrograms)
      stage.communication[axis] += pass.cost.communication[axis], stage.bytes[axis] += pass.cost.bytes[axis];
    return pass.seconds;
  }

  const ComputeTimes& times_;
  Prices& prices_;
  double crowd_;
  std::vector<std::int64_t> samples_of_{};  // by micro-batch
  double idle_ = 0;                         // of the device, after the last pass
  std::unordered_map<const std::vector<Action>*, FoldedPass> passes_{};
  FoldedSplits splits_{};
};

std::string bottleneck_of(const Split& split) {
  std::vector<std::pair<double, std::string>> parts{{split.compute, "compute"},
                                                    {split.optimizer, "optimizer"},
                                                    {split.encoding, "encoding"},
                                                    {split.bubble, "bubble"},
                                                    {split.straggling, "stragglers"}};
  for (const Axis axis : kAxesOfPrograms) parts.emplace_back(split.exposed[axis], std::string(name_of(axis)) + " communication");
  return std::ranges::max_element(parts, {}, &std::pair<double, std::string>::first)->second;
}

/// `late`: the factor by which the slowest of equal workers computes longer than the mean. All wait for the stage that computes longest.
void add_up(StepCost& step, double late) {
  double slowest = 0;
  for (const StageCost& stage : step.stages) {
    slowest = std::max(slowest, stage.split.compute);
    for (const Axis axis : kAxesOfPrograms) {
      step.communication[axis] = std::max(step.communication[axis], stage.communication[axis]);
      step.bytes[axis] = std::max(step.bytes[axis], stage.bytes[axis]);
    }
  }
  for (StageCost& stage : step.stages) {
    stage.split.straggling = late * slowest;
    add_share(step.split, stage.split, 1 / static_cast<double>(step.stages.size()));
  }
  step.seconds += late * slowest;
  step.steps_per_s = 1 / step.seconds;
}

/// The ranks of a stage are neighbours, and so are stages. A stage that does not fit on one host fills several hosts.
std::optional<Turns> turns_of(const Cluster& cluster, const schedule::ProgramSettings& settings, const CostOptions& options) {
  if (options.crowd <= 1) return std::nullopt;
  const std::int64_t stage = static_cast<std::int64_t>(settings.data) * settings.tensor;
  return Turns{.stage_ranks = static_cast<double>(std::min(stage, cluster.devices)),
               .devices = static_cast<double>(cluster.devices) / options.crowd,
               .stages = static_cast<int>(std::max<std::int64_t>(cluster.devices / stage, 1))};
}

/// Workers that visit the servers when they are ready wait there in a queue.
void add_queue(StepCost& step, std::span<const schedule::Program> stages, const Prices& prices, const ComputeTimes& times,
               std::int64_t workers, double between_s) {
  double pulls = 0, pushes = 0;  // a server sends and receives through separate wires
  for (const schedule::Program& program : stages)
    for (const Action& action : program) {
      if (action.exchange == Exchange::pull) pulls += prices.visit(action, times);
      if (action.exchange == Exchange::push) pushes += prices.visit(action, times);
    }
  const double visit = std::max(pulls, pushes);
  const Asynchronous queue = asynchronous(workers, step.seconds + between_s - visit, visit);
  for (StageCost& stage : step.stages) stage.split.exposed[Axis::server] += queue.waiting_s;
  step.split.exposed[Axis::server] += queue.waiting_s;
  step.seconds = queue.cycle_s - between_s, step.staleness = queue.staleness;
  step.steps_per_s = queue.updates_per_s * queue.cycle_s / step.seconds;
}

void add_interval(StepCost& step, const schedule::ProgramSettings& settings, const ComputeTimes& times, const TalkDoubt& talk) {
  const std::int64_t sizes[] = {settings.samples_of(0), settings.samples_of(settings.parts() - 1)};  // the smallest and the largest
  Doubt doubt = times.doubt(sizes);
  step.notes = std::move(doubt.notes);
  for (std::string& note : talk.notes()) step.notes.push_back(std::move(note));
  const Split& split = step.split;
  const double error =
      doubt.share * (split.compute + split.optimizer + split.encoding + split.bubble + split.straggling) + talk.error(split.exposed);
  step.low = std::max(0.0, step.seconds - error), step.high = step.seconds + error;
}

PlayedStep play_priced(const CostModel::ShortStep& written, const ComputeTimes& times, const CostOptions& options, Prices& prices,
                       const Cluster& cluster) {
  const auto& [stages, settings] = written;
  if (std::ssize(stages) != settings.pipeline) throw InternalError("a step has one program for each stage of the pipeline");
  PlayedStep step;
  step.stages.resize(stages.size()), step.busy.resize(stages.size());
  std::vector<double> durations;
  std::size_t actions = 0;
  for (const schedule::Program& program : stages) actions += program.size();
  durations.reserve(actions);
  Durations all(settings, times, prices, std::max(options.crowd, 1.0));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) all.add(durations, step, static_cast<int>(stage), stages[stage]);
  ensure(!settings.folds || CostModel::folds(cluster, options), "passes are folded where no action slows down another one");
  const Play played =
      play(stages, durations, {.slowdown = cluster.device.slowdown_factor(), .turns = turns_of(cluster, settings, options)});
  step.seconds = played.seconds;
  // The delay of the slowest depends on its computing time.
  const bool splits = options.splits || options.jitter.distribution != "constant";
  for (std::size_t stage = 0; splits && stage < stages.size(); ++stage)
    step.stages[stage].split = split_of(played, stages, static_cast<int>(stage), all.folded_splits());
  return step;
}

template <class Play>
PlayedStep play_once(std::int64_t micro_batches, bool splits, CostModel::Plays* plays, const Play& play) {
  if (!plays) return play(micro_batches);
  if (const auto found = plays->find({micro_batches, true}); found != plays->end()) return found->second;
  if (const auto found = plays->find({micro_batches, splits}); found != plays->end()) return found->second;
  return plays->emplace(std::pair(micro_batches, splits), play(micro_batches)).first->second;
}

}  // namespace

void scale(StepCost& cost, double factor) {
  cost.seconds *= factor, cost.low *= factor, cost.high *= factor, cost.steps_per_s /= factor;
  const auto times = [factor](Split& split) {
    Split made;
    add_share(made, split, factor);
    split = made;
  };
  times(cost.split);
  for (double& seconds : cost.communication.of) seconds *= factor;
  for (StageCost& stage : cost.stages) {
    times(stage.split);
    for (double& seconds : stage.communication.of) seconds *= factor;
  }
}

CostModel::CostModel(const Cluster& cluster) : cluster_(cluster), collectives_(std::make_unique<CollectiveCosts>(cluster)) {}
CostModel::CostModel(const Cluster& cluster, const CostModel& other)
    : cluster_(cluster), collectives_(std::make_unique<CollectiveCosts>(cluster, *other.collectives_)) {}
CostModel::~CostModel() = default;

StepCost CostModel::cost(const ShortStep& step, const ComputeTimes& times, const CostOptions& options, Plays* plays) const {
  Prices prices(cluster_, step.settings, options, *collectives_);
  const auto play = [&](std::int64_t) { return play_priced(step, times, options, prices, cluster_); };
  PlayedStep played = play_once(step.settings.micro_batches, options.splits, plays, play);
  return finished(std::move(played), step.stages, step.settings, times, options, prices);
}

std::optional<StepCost> CostModel::cost_of_longer(const WriteStep& write, const schedule::ProgramSettings& settings,
                                                  const ComputeTimes& times, const CostOptions& options, std::int64_t round,
                                                  Plays* plays) const {
  ensure(!options.asynchronous, "steps that wait in a queue are played as they are");
  Prices prices(cluster_, settings, options, *collectives_);
  const auto play = [&](std::int64_t micro_batches) { return play_priced(write(micro_batches), times, options, prices, cluster_); };
  std::optional<PlayedStep> whole = play_longer(
      [&](std::int64_t micro_batches) { return play_once(micro_batches, options.splits, plays, play); }, settings.micro_batches, round);
  if (!whole) return std::nullopt;
  return finished(std::move(*whole), {}, settings, times, options, prices);
}

bool CostModel::folds(const Cluster& cluster, const CostOptions& options) {
  return cluster.device.slowdown_factor() <= 1 && options.crowd <= 1;
}

StepCost CostModel::finished(PlayedStep played, std::span<const schedule::Program> stages, const schedule::ProgramSettings& settings,
                             const ComputeTimes& times, const CostOptions& options, const Prices& prices) const {
  const double around = times.around_seconds(settings.samples) * std::max(options.crowd, 1.0);
  StepCost step;
  step.seconds = played.seconds + around;
  step.stages = std::move(played.stages);
  for (StageCost& stage : step.stages) stage.split.compute += around;
  add_up(step, options.asynchronous ? 0 : slowest_of(options.jitter, prices.place().ranks()) - 1);
  if (options.asynchronous) add_queue(step, stages, prices, times, settings.data, options.between_s);
  add_interval(step, settings, times, played.doubt);
  step.bottleneck = bottleneck_of(step.split);
  return step;
}

double CostModel::slowest_of(const Jitter& jitter, std::int64_t ranks) const {
  const auto [found, missing] = slowest_.try_emplace({jitter.distribution, jitter.shape, jitter.tail, ranks});
  if (missing) found->second = expected_maximum(jitter, ranks);
  return found->second;
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
