// Plays all ranks of a problem in one thread: buffers are vectors of any type with a sum, messages go through queues between pairs of
// ranks. It holds every list against the rules of schedule.h, as strictly as any engine could: a round ends only once its sends have been
// taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

inline std::string describe(const Problem& p) {
  std::ostringstream out;
  out << name_of(p.collective) << " size=" << p.size << " count=" << p.count << " root=" << p.root << " per_host=" << p.per_host
      << " chunks=" << p.chunks << (p.short_sum ? " short" : "");
  return out.str();
}

inline std::string describe(const Step& step) {
  static constexpr const char* kNames[] = {"send to", "receive from", "reduce from", "give to", "copy at", "collect from", "sum from"};
  std::ostringstream out;
  out << "round " << step.round << ": " << kNames[static_cast<int>(step.kind)] << ' ' << step.peer << " [" << step.range.begin << ", "
      << step.range.end << ')';
  return out.str();
}

/// For failures: gtest prints a step as this.
inline void PrintTo(const Step& step, std::ostream* out) { *out << describe(step); }

inline std::vector<Steps> all_steps(const Algorithm& algorithm, Problem problem) {
  std::vector<Steps> lists;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) lists.push_back(algorithm.steps(problem));
  return lists;
}

template <class T>
class Player {
 public:
  /// Chooses whose turn it is among so many ranks; the chosen one may find that it must wait.
  using Turn = std::function<std::size_t(std::size_t ranks)>;

  Player(const Problem& problem, std::vector<Steps> lists, std::vector<std::vector<T>> inputs)
      : separate_(problem.collective == Collective::all_to_all),
        lists_(std::move(lists)),
        inputs_(separate_ ? inputs : std::vector<std::vector<T>>{}),
        ranks_(lists_.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].heard = std::uint64_t{1} << rank;
      ranks_[rank].buffer = separate_ ? std::vector<T>(inputs[rank].size()) : std::move(inputs[rank]);
    }
  }

  /// Plays to the end. Returns what went wrong, or nothing.
  std::string play(const Turn& turn) {
    std::vector<std::size_t> ready(ranks_.size()), parked;  // parked: could not go on since anybody last did
    std::iota(ready.begin(), ready.end(), 0);
    while (!ready.empty() && error_.empty()) {
      const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(turn(ready.size()));
      const std::size_t rank = *chosen;
      if (advance(static_cast<int>(rank))) {
        ready.insert(ready.end(), parked.begin(), parked.end());
        parked.clear();
      } else {
        ready.erase(chosen);
        if (!done(rank)) parked.push_back(rank);
      }
    }
    if (error_.empty() && !parked.empty()) error_ = "deadlock:" + where(parked);
    return error_;
  }

  /// What a rank holds afterwards (of an all-to-all, its output).
  const std::vector<T>& buffer(int rank) const { return ranks_[static_cast<std::size_t>(rank)].buffer; }
  /// Bit r is set where word of rank r has come, directly or through others.
  std::uint64_t heard(int rank) const { return ranks_[static_cast<std::size_t>(rank)].heard; }

 private:
  struct Message {
    Range range;
    int round;
    std::uint64_t heard;
    std::vector<T> values;
  };
  struct Rank {
    std::vector<T> buffer;
    std::uint64_t heard = 0;
    std::map<int, Message> collected;  // in this round, by rank
    std::size_t position = 0;          // of the next step that is not a send
    std::size_t round_end = 0;         // the first step past the current round
    int in_flight = 0;                 // sends of the current round that nobody has taken yet
  };

  static bool overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

  bool done(std::size_t rank) const { return ranks_[rank].position == lists_[rank].size() && ranks_[rank].in_flight == 0; }

  /// One step of this rank, or the sends of its next round; false where it must wait.
  bool advance(int rank) {
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    const Steps& list = lists_[static_cast<std::size_t>(rank)];
    while (self.position < self.round_end && list[self.position].leaves()) ++self.position;
    if (self.position == self.round_end) {
      if (self.in_flight > 0 || self.position == list.size()) return false;
      begin_round(rank);
      return true;
    }
    const Step& step = list[self.position];
    if (step.kind == Step::Kind::copy) {
      const auto& input = inputs_[static_cast<std::size_t>(rank)];
      std::copy(input.begin() + step.range.begin, input.begin() + step.range.end, self.buffer.begin() + step.range.begin);
    } else if (step.kind == Step::Kind::sum) {
      add_collected(rank, step);
    } else if (!take(rank, step)) {
      return false;
    }
    ++self.position;
    return true;
  }

  void add_collected(int rank, const Step& step) {
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    const int size = static_cast<int>(ranks_.size());
    for (std::int64_t i = step.range.begin; i < step.range.end; ++i) {
      T& here = self.buffer[static_cast<std::size_t>(i)];
      const auto of = [&](int from) {
        if (from == rank) return here;
        const auto found = self.collected.find(from);
        if (found != self.collected.end() && found->second.range.begin <= i && i < found->second.range.end)
          return found->second.values[static_cast<std::size_t>(i - found->second.range.begin)];
        fail(rank, "adds what it has not collected: " + describe(step));
        return here;
      };
      T sum = of(step.peer);
      for (int k = 1; k < size; ++k) sum = sum + of((step.peer + k) % size);
      here = sum;
    }
  }

  void begin_round(int rank) {
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    const Steps& list = lists_[static_cast<std::size_t>(rank)];
    const std::size_t begin = self.position;
    self.collected.clear();
    while (self.round_end < list.size() && list[self.round_end].round == list[begin].round) ++self.round_end;
    if (self.round_end < list.size() && list[self.round_end].round < list[begin].round) fail(rank, "its rounds do not ascend");
    for (std::size_t i = begin; i < self.round_end; ++i) {
      const Step& step = list[i];
      if (step.peer < 0 || step.peer >= static_cast<int>(ranks_.size()) || (step.peer == rank && !step.stays())) {
        return fail(rank, "has no such peer: " + describe(step));
      }
      if (step.range.begin < 0 || step.range.end > static_cast<std::int64_t>(self.buffer.size()) || step.range.size() < 0) {
        return fail(rank, "leaves its buffer: " + describe(step));
      }
      if (!step.leaves()) continue;
      for (std::size_t j = begin; j < self.round_end; ++j) {
        if (!separate_ && list[j].kind == Step::Kind::receive && overlap(step.range, list[j].range)) {
          return fail(rank, "receives over what it sends: " + describe(step) + " and " + describe(list[j]));
        }
      }
      const auto& source = step.kind == Step::Kind::give ? inputs_[static_cast<std::size_t>(rank)] : self.buffer;
      channels_[{rank, step.peer}].push_back(
          {step.range, step.round, self.heard, {source.begin() + step.range.begin, source.begin() + step.range.end}});
      ++self.in_flight;
    }
  }

  bool take(int rank, const Step& step) {
    auto& channel = channels_[{step.peer, rank}];
    if (channel.empty()) return false;
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    const Message& message = channel.front();
    const bool fits = separate_ ? message.range.size() == step.range.size() : message.range == step.range;
    if (!fits || message.round != step.round) {
      fail(rank, "takes another message than was sent: " + describe(step) + " of round " + std::to_string(message.round) + " [" +
                     std::to_string(message.range.begin) + ", " + std::to_string(message.range.end) + ")");
      return true;
    }
    for (std::int64_t i = 0; i < step.range.size(); ++i) {
      if (step.kind == Step::Kind::collect) break;
      T& here = self.buffer[static_cast<std::size_t>(step.range.begin + i)];
      const T& there = message.values[static_cast<std::size_t>(i)];
      here = step.kind == Step::Kind::reduce ? here + there : there;
    }
    if (step.kind == Step::Kind::collect) self.collected[step.peer] = message;
    self.heard |= message.heard;
    --ranks_[static_cast<std::size_t>(step.peer)].in_flight;
    channel.pop_front();
    return true;
  }

  void fail(int rank, const std::string& what) {
    if (error_.empty()) error_ = "rank " + std::to_string(rank) + ' ' + what;
  }

  std::string where(std::vector<std::size_t> ranks) const {
    std::string text;
    std::ranges::sort(ranks);
    for (const std::size_t rank : ranks) {
      const Rank& self = ranks_[rank];
      text += "\n  rank " + std::to_string(rank) + " at ";
      text += self.position < self.round_end ? describe(lists_[rank][self.position]) : "the end of a round, its sends not taken";
    }
    return text;
  }

  bool separate_;  // all-to-all: output and input are two buffers
  std::vector<Steps> lists_;
  std::vector<std::vector<T>> inputs_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<Message>> channels_;
  std::string error_;
};

}  // namespace paceline::schedule
