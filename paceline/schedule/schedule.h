// A collective algorithm is a pure function: from a problem to one rank's list of steps. `comm` executes the list on any engine, `perf`
// costs it, `sim` replays it, and a test can simulate all ranks without processes or tensors.
//
// A list is divided into rounds. The steps of one round run at the same time: all its sends carry what the buffer held when the round
// began, then what arrives is stored or reduced, in the order of the list. There is no barrier between rounds: a rank continues as soon as
// its own round is done, so that ranks synchronise only through their messages. Messages between two ranks keep the order of the lists.
//
// A message has the same round number in its sender's and its receiver's list, and the same range (except in all-to-all). Therefore no
// list can deadlock, even if a send only completes when its receiver has the data: the ranks in the earliest round can always complete it.
// In one round, what is received never overlaps what is sent; what is reduced may, so an engine keeps the values of those sends.
//
// Because the list fixes the order of all additions, a result has the same bits on every engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "paceline/base/registry.h"

namespace paceline::schedule {

struct Round;  // path.h

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

/// One rank's view of a collective. Collectives work in place on a buffer of `count` elements:
///   allreduce       all of it becomes the reduction of all ranks' buffers
///   reduce_scatter  part(count, size, rank) becomes the reduction; the rest is undefined afterwards
///   all_gather      part(count, size, rank) is given, all of it is filled
///   broadcast       all of it becomes the root's;      reduce: the root's becomes the reduction, others' are undefined afterwards
///   all_to_all      part i of the input goes to rank i, into its output's part `rank`; parts have equal size
///   barrier         no elements; no rank leaves before all have arrived
struct Problem {
  Collective collective = Collective::allreduce;
  int rank = 0, size = 1;
  std::int64_t count = 0;
  int root = 0;
  int per_host = 1;         // ranks of a host, which are neighbours: host = rank / per_host. Flat algorithms do not use it, except for
                            // direct's reduce
  std::int64_t chunks = 1;  // pieces that flow through a tree or chain one after the other
  bool short_sum = false;   // who needs the sum takes everybody's data and adds for itself (Lowering::short_sum)
};

struct Step {
  enum class Kind : std::uint8_t {
    send,     // buffer[range] to peer
    receive,  // buffer[range] from peer
    reduce,   // buffer[range] = buffer[range] ⊕ what arrives from peer
    give,     // all-to-all: input[range] to peer
    copy,     // all-to-all: output[range] = input[range], this rank's own part; no message
    collect,  // buffer[range] from peer, for the sums of this round
    sum,      // buffer[range] = what was collected and this rank's own, added in the order peer, peer + 1, … (mod p); no message
  };
  Kind kind = Kind::send;
  int peer = 0;
  Range range;
  int round = 0;  // ascending along the list
  bool operator==(const Step&) const = default;

  bool leaves() const { return kind == Kind::send || kind == Kind::give; }
  bool stays() const { return kind == Kind::copy || kind == Kind::sum; }           // has no message
  bool is_added() const { return kind == Kind::reduce || kind == Kind::collect; }  // what arrives is part of one addition
};
using Steps = std::vector<Step>;

/// The work of a rank, as an algorithm's formula counts it.
struct Counts {
  int rounds = 0;            // until the rank is done, including those in which it waits for a pipeline to fill; times α
  std::int64_t sent = 0;     // elements, all that its link sends; over B if no rank waits for another (path.h has the time)
  std::int64_t reduced = 0;  // elements; times g
  bool operator==(const Counts&) const = default;
};
/// One phase after another.
constexpr Counts operator+(const Counts& a, const Counts& b) { return {a.rounds + b.rounds, a.sent + b.sent, a.reduced + b.reduced}; }
Counts count(std::span<const Step> steps);

/// A way to execute an algorithm's schedule in one pass, on memory that the ranks of a host share: the same additions in the same order, so
/// the same bits, but none of the messages inside a host. comm declares which of its paths does it (comm/lowering.h), and a test compares
/// that path with the steps.
struct Lowering {
  std::string_view help;                             // what replaces the messages
  bool (*covers)(const Problem& problem) = nullptr;  // if the ranks of a host share memory; null: never
  /// Whether it runs the steps of Problem::short_sum for a buffer of this many bytes in host memory: more bytes than otherwise, but a
  /// single round. Null: never. Only lowerings run these steps, which have no messages of their own.
  bool (*short_sum)(const Problem& problem, std::int64_t bytes) = nullptr;
  explicit operator bool() const { return covers != nullptr; }
};

/// One algorithm: steps(problem) for the collectives in `offers`, and what they cost. If `size` (and the chunks) divide the count, the
/// formula is exact; a test compares it with the steps. Both throw ConfigError for an impossible problem.
struct Algorithm {
  Steps (*steps)(const Problem& problem) = nullptr;
  Counts (*formula)(const Problem& problem) = nullptr;  // each number is the maximum over the ranks; problem.rank is not used
  std::span<const Collective> offers;
  /// The number of chunks for a buffer of this many bytes: Problem::chunks, as every engine uses it.
  std::int64_t (*chunks)(const Problem& problem, std::int64_t bytes) = nullptr;
  Lowering lowering = {};
  /// What critical_rounds() makes of the lists of all ranks (path.h), without them; none for a problem that takes the lists. The ranks (and
  /// hosts, and chunks) divide the count. Null: there is no closed form.
  std::optional<std::vector<Round>> (*rounds)(const Problem& problem, int per_host) = nullptr;
  /// Whether `auto` takes it regardless of cost; null: never. `shares_memory`: the ranks of a host can read each other's memory.
  bool (*settles)(const Problem& problem, bool shares_memory) = nullptr;
  bool by_host = false;  // the ranks of a host must be neighbours
  bool near = false;     // on a grid, messages go to neighbours, or along its sides without meeting
  bool offer(Collective collective) const;
  /// The problem as engines run it for a buffer of this many bytes: with its chunks, and as a short sum where it is one. `shares_memory`:
  /// the buffer is in host memory, and the ranks of a host can read each other's.
  Problem sized(Problem problem, std::int64_t bytes, bool shares_memory) const;
};
/// The number of chunks that flow through a tree or chain.
std::int64_t pipeline_chunks(const Problem& problem, std::int64_t bytes);

std::span<const Entry<Algorithm>> algorithms();
/// The key of what runs where `key` is configured: the same, or for a collective that it does not offer, ring, which offers all. The same
/// on every engine, as additions have an order.
std::string_view configured_for(std::string_view key, Collective collective);
/// The row with this key, which must offer the collective. Throws ConfigError that names the algorithms that do.
const Entry<Algorithm>& algorithm_for(std::string_view key, Collective collective);

}  // namespace paceline::schedule
