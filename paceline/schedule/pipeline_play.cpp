#include "paceline/schedule/pipeline_play.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace paceline::schedule {
namespace {

using Kind = PipelineStep::Kind;

/// What has happened so far to all micro-batches.
class Player {
 public:
  Player(const std::vector<PipelineSteps>& lists, const PipelineProblem& problem, const std::vector<StageCosts>& stages, double transfer)
      : lists_(lists), problem_(problem), stages_(stages), transfer_(transfer), kept_(lists.size(), 0) {
    play_.ranks.resize(lists.size());
    play_.in_flight.resize(lists.size(), 0);
  }

  PipelinePlay run() && {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < problem_.stages; ++rank)
        while (advance(rank)) moved = true;
    }
    double busy = 0;
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      if (play_.ranks[rank].size() < lists_[rank].size()) refuse(static_cast<int>(rank));
      for (const TimedStep& timed : play_.ranks[rank]) {
        busy += timed.end - timed.begin;
        play_.makespan = std::max(play_.makespan, timed.end);
      }
    }
    play_.bubble = play_.makespan > 0 ? 1 - busy / (play_.makespan * problem_.stages) : 0;
    return std::move(play_);
  }

 private:
  struct Done {
    Kind kind;  // forward, backward_input, weight_gradients
    int micro_batch, stage;
    auto operator<=>(const Done&) const = default;
  };

  int stage_of(int rank, const PipelineStep& step) const { return step.chunk * problem_.stages + rank; }

  /// When the step's inputs are available; nullopt if they are not computed yet.
  std::optional<double> ready(int rank, const PipelineStep& step) const {
    const int stage = stage_of(rank, step);
    double when = 0;
    const auto needs = [&](Kind kind, int at, double way) {
      const auto found = done_.find({kind, step.micro_batch, at});
      if (found == done_.end()) return false;
      when = std::max(when, found->second + way);
      return true;
    };
    const double way = problem_.stages > 1 ? transfer_ : 0;
    bool there = true;
    if (step.kind == Kind::forward) there = stage == 0 || needs(Kind::forward, stage - 1, way);
    else if (goes_back(step.kind))
      there = needs(Kind::forward, stage, 0) && (stage + 1 == problem_.virtual_stages() || needs(Kind::backward_input, stage + 1, way));
    else there = needs(Kind::backward_input, stage, 0);
    return there ? std::optional(when) : std::nullopt;
  }

  bool advance(int rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::vector<TimedStep>& made = play_.ranks[me];
    if (made.size() == lists_[me].size()) return false;
    const PipelineStep& step = lists_[me][made.size()];
    const auto when = ready(rank, step);
    if (!when) return false;
    const double begin = std::max(*when, made.empty() ? 0 : made.back().end);
    const double end = begin + stages_.at(static_cast<std::size_t>(stage_of(rank, step))).of(step.kind);
    made.push_back({step, begin, end});
    note(rank, step, end);
    return true;
  }

  void note(int rank, const PipelineStep& step, double end) {
    const int stage = stage_of(rank, step);
    const auto me = static_cast<std::size_t>(rank);
    if (step.kind == Kind::forward) play_.in_flight[me] = std::max(play_.in_flight[me], ++kept_[me]);
    if (frees(step.kind)) --kept_[me];
    if (step.kind != Kind::weight_gradients)
      done_[{step.kind == Kind::forward ? Kind::forward : Kind::backward_input, step.micro_batch, stage}] = end;
    play_.messages += sent(problem_, rank, step).has_value();
  }

  [[noreturn]] void refuse(int rank) const {
    const PipelineStep& step = lists_[static_cast<std::size_t>(rank)][play_.ranks[static_cast<std::size_t>(rank)].size()];
    throw InternalError(
        fmt::format("a pipeline of {} stages and {} micro-batches deadlocks: rank {} waits forever before the {} of micro-batch {}",
                    problem_.stages, problem_.micro_batches, rank, name_of(step.kind), step.micro_batch));
  }

  const std::vector<PipelineSteps>& lists_;
  const PipelineProblem& problem_;
  const std::vector<StageCosts>& stages_;
  double transfer_;
  std::map<Done, double> done_;
  std::vector<int> kept_;
  PipelinePlay play_;
};

}  // namespace

double StageCosts::of(Kind kind) const {
  switch (kind) {
    case Kind::forward: return forward;
    case Kind::backward: return input_gradients + weight_gradients;
    case Kind::backward_input: return input_gradients;
    case Kind::weight_gradients: return weight_gradients;
  }
  throw InternalError("a pipeline step without a cost");
}

PipelinePlay play(const std::vector<PipelineSteps>& lists, const PipelineProblem& problem, const std::vector<StageCosts>& stages,
                  double transfer) {
  return Player(lists, problem, stages, transfer).run();
}

PipelinePlay play(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, const PipelineCosts& costs, double transfer) {
  std::vector<PipelineSteps> lists;
  for (int rank = 0; rank < problem.stages; ++rank) lists.push_back(steps_of(schedule, problem, rank));
  const double part = 1.0 / problem.chunks;
  const std::vector<StageCosts> stages(static_cast<std::size_t>(problem.virtual_stages()),
                                       {costs.forward * part, costs.input_gradients * part, costs.weight_gradients * part});
  return play(lists, problem, stages, transfer);
}

}  // namespace paceline::schedule
