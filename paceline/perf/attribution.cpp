#include "paceline/perf/attribution.h"

#include <algorithm>

namespace paceline::perf {
namespace {

using schedule::Action;
using Axis = Action::Axis;
using Work = Action::Work;

class Attribution {
 public:
  Attribution(const Play& play, std::span<const schedule::Program> stages, int stage, const FoldedSplits& folded)
      : play_(play),
        stages_(stages),
        folded_(folded),
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
      if (action.parts) add_share(split, folded_.at(action.parts.get()), 1);
      else add_to(split, action, played.end - played.begin);
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
      if (own < 0 || own >= std::ssize(program_)) {  // an action of another stage: its message is in flight, or it is not ready yet
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
  const FoldedSplits& folded_;
  const schedule::Program& program_;
  int first_;
};

}  // namespace

void add_to(Split& split, const Action& action, double seconds) {
  if (action.kind == Action::Kind::communicate) split.exposed[action.axis] += seconds;
  else if (action.work == Work::update) split.optimizer += seconds;
  else if (action.work == Work::encode || action.work == Work::decode) split.encoding += seconds;
  else if (action.kind == Action::Kind::compute) split.compute += seconds;
  else split.bubble += seconds;
}

void add_share(Split& sum, const Split& other, double weight) {
  sum.compute += other.compute * weight, sum.optimizer += other.optimizer * weight, sum.encoding += other.encoding * weight;
  sum.bubble += other.bubble * weight, sum.straggling += other.straggling * weight;
  for (const Axis axis : kAxesOfPrograms) sum.exposed[axis] += other.exposed[axis] * weight;
}

Split split_of(const Play& play, std::span<const schedule::Program> stages, int stage, const FoldedSplits& folded) {
  return Attribution(play, stages, stage, folded).split();
}

}  // namespace paceline::perf
