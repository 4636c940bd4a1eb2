// A collective algorithm is a pure function: from a problem to one rank's list of steps. `comm` executes the list on any engine, `perf`
// costs it, `sim` replays it, and a test can play all ranks of it with no process and no tensor.
//
// A list is cut into rounds. The steps of one round go on at the same time: all its sends carry what the buffer held when the round began,
// then what arrives is put in place or reduced, in the order of the list. There is no barrier between rounds: a rank goes on as soon as its
// own round is done, so that ranks meet only in their messages. Messages between two ranks keep the order of the lists.
//
// A message has the same round number in its sender's and its receiver's list, and the same range (but for all-to-all). Therefore no list
// can deadlock, not even where a send ends only once its receiver has taken it: the ranks that are in the earliest round can always end it.
// In one round, what is received never overlaps what is sent; what is reduced may, so an engine keeps those sends' values.
//
// Because the list fixes the order of all additions, a result has the same bits on every engine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "paceline/base/registry.h"

namespace paceline::schedule {

enum class Collective : std::uint8_t { allreduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, barrier };
inline constexpr Collective kCollectives[] = {Collective::allreduce, Collective::reduce_scatter, Collective::all_gather,
                                              Collective::broadcast, Collective::reduce,         Collective::all_to_all,
                                              Collective::barrier};
std::string_view name_of(Collective collective);

/// Elements [begin, end) of a buffer.
struct Range {
  std::int64_t begin = 0, end = 0;
  constexpr std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `parts` nearly equal parts of [0, count): what rank `index` owns after a reduce-scatter.
constexpr Range part(std::int64_t count, int parts, int index) { return {count * index / parts, count * (index + 1) / parts}; }

/// What is asked of one rank. Collectives work in place on a buffer of `count` elements:
///   allreduce       all of it becomes the reduction of all ranks' buffers
///   reduce_scatter  part(count, size, rank) becomes the reduction; the rest is undefined afterwards
///   all_gather      part(count, size, rank) is given, all of it is filled
///   broadcast       all of it becomes the root's;      reduce: the root's becomes the reduction, others' are undefined afterwards
///   all_to_all      part i of the input goes to rank i, where it lies in the output's part `rank`; parts are of one size
///   barrier         no element; nobody leaves before everybody came
struct Problem {
  Collective collective = Collective::allreduce;
  int rank = 0, size = 1;
  std::int64_t count = 0;
  int root = 0;
  int per_host = 1;         // ranks of a host, which are neighbours: host = rank / per_host. Flat algorithms do not look at it, but for
                            // direct's reduce
  std::int64_t chunks = 1;  // pieces that flow through a tree or chain behind one another
};

struct Step {
  enum class Kind : std::uint8_t {
    send,     // buffer[range] to peer
    receive,  // buffer[range] from peer
    reduce,   // buffer[range] = buffer[range] ⊕ what comes from peer
    give,     // all-to-all: input[range] to peer
    copy,     // all-to-all: output[range] = input[range], this rank's own part; no message
  };
  Kind kind = Kind::send;
  int peer = 0;
  Range range;
  int round = 0;  // ascending along the list
  bool operator==(const Step&) const = default;
};
using Steps = std::vector<Step>;

/// What a rank does: the numbers that an algorithm's formula is made of.
struct Counts {
  int rounds = 0;            // until the rank is done, those in which it waits for a pipeline to fill included; times α
  std::int64_t sent = 0;     // elements, all that its link carries out; over B where nobody waits for anybody (path.h has the time)
  std::int64_t reduced = 0;  // elements; times g
  bool operator==(const Counts&) const = default;
};
/// One phase after another.
constexpr Counts operator+(const Counts& a, const Counts& b) { return {a.rounds + b.rounds, a.sent + b.sent, a.reduced + b.reduced}; }
Counts count(std::span<const Step> steps);

/// A way to execute an algorithm's schedule in one pass, on memory that the ranks of a host share: the same additions in the same order, so
/// the same bits, but none of the messages inside a host. comm declares which of its paths does it (comm/lowering.h), and a test holds that
/// path against the steps.
struct Lowering {
  std::string_view help;                             // what becomes of the messages
  bool (*covers)(const Problem& problem) = nullptr;  // where the ranks of a host share memory; null: nowhere
  explicit operator bool() const { return covers != nullptr; }
};

/// One algorithm: steps(problem) for the collectives in `offers`, and what they cost. For a count that `size` (and the chunks) divide the
/// formula is exact; a test holds it against the steps. Both throw ConfigError for a problem that cannot be.
struct Algorithm {
  Steps (*steps)(const Problem& problem) = nullptr;
  Counts (*formula)(const Problem& problem) = nullptr;  // each number of the rank that has most of it; problem.rank is not looked at
  std::span<const Collective> offers;
  /// Into how many chunks a buffer of so many bytes is cut: Problem::chunks, as every engine runs it.
  std::int64_t (*chunks)(const Problem& problem, std::int64_t bytes) = nullptr;
  Lowering lowering = {};
  bool offer(Collective collective) const;
};
/// Chunks of what flows through a tree or chain.
std::int64_t pipeline_chunks(const Problem& problem, std::int64_t bytes);

std::span<const Entry<Algorithm>> algorithms();
/// The row with this key, which must offer the collective. Throws ConfigError that names those which do.
const Entry<Algorithm>& algorithm_for(std::string_view key, Collective collective);

}  // namespace paceline::schedule
