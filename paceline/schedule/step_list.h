// The tools with which algorithms build their lists: the list itself, teams of ranks, and buffers divided into blocks.
#pragma once

#include <functional>

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

/// A list under construction. Steps may be added round by round or message by message: take() sorts them by round, and
/// keeps the order within a round. An empty range is omitted on both sides, except in a barrier, which consists of empty messages
/// only.
class StepList {
 public:
  explicit StepList(Collective collective) : keep_empty_(collective == Collective::barrier) {}

  /// The steps added next belong to this round.
  StepList& round(int round) {
    round_ = round;
    return *this;
  }
  void add(Step::Kind kind, int peer, Range range);
  void send(int peer, Range range) { add(Step::Kind::send, peer, range); }
  void receive(int peer, Range range) { add(Step::Kind::receive, peer, range); }
  /// `arrival` is receive or reduce.
  void exchange(int to, Range out, Step::Kind arrival, int from, Range in);

  Steps take() &&;

 private:
  Steps steps_;
  int round_ = 0;
  bool keep_empty_;
};

/// The ranks that work together: index i of `size` is rank first + i·stride, modulo `around`.
struct Team {
  int size = 1;
  int me = 0;  // my index
  int first = 0, stride = 1, around = 1;

  int rank(int index) const { return (first + index * stride) % around; }
};
/// Index = rank.
Team everyone(const Problem& problem);
/// Index 0 is the root; the others follow in order.
Team from_root(const Problem& problem);

/// Block i of a buffer that is divided into one block per index.
using Blocks = std::function<Range(int index)>;
/// Part `index` of `parts` nearly equal parts of `whole`.
constexpr Range cut(Range whole, int parts, int index) {
  const Range inside = part(whole.size(), parts, index);
  return {whole.begin + inside.begin, whole.begin + inside.end};
}
Blocks cut(Range whole, int parts);
/// Blocks begin … end−1, which are contiguous, as one range.
inline Range stretch(const Blocks& blocks, int begin, int end) { return {blocks(begin).begin, blocks(end - 1).end}; }
inline Range whole(const Problem& problem) { return {0, problem.count}; }
/// What rank i owns.
inline Blocks parts(const Problem& problem) { return cut(whole(problem), problem.size); }

/// An allreduce is a reduce-scatter and then an all-gather; a barrier is an all-gather of nothing: every rank hears from every other.
constexpr bool scatters(Collective collective) { return collective == Collective::allreduce || collective == Collective::reduce_scatter; }
constexpr bool gathers(Collective collective) { return collective != Collective::reduce_scatter; }
constexpr int halves(Collective collective) { return scatters(collective) + gathers(collective); }

/// ⌈log₂ n⌉ for n ≥ 1.
int ceil_log2(int n);

}  // namespace paceline::schedule
