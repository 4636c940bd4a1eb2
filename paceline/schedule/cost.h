// The cost of a collective on a machine, and the cheapest algorithm. Pure functions of numbers: `comm` chooses by them, and the performance
// model needs nothing else.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "paceline/schedule/path.h"

namespace paceline::schedule {

/// The cost of messages on one class of links.
struct Link {
  double alpha_s = 0;      // of one message
  double gap_s = 0;        // of each further message that a rank sends or receives at the same time
  double bytes_per_s = 0;  // B: of a rank inside a host, of a host between hosts
};

/// Both classes of links, and which ranks they connect: every `per_host` neighbours are a host. With 1, every message crosses hosts.
///
/// A round takes as long as the slower of its classes, each α + queued·gap + moved/B, since a rank's memory and its host's network carry
/// messages at the same time; then its additions, reduced·g and held·h, along the critical path (path.h, docs/algorithm_choice.md).
struct Costs {
  Link inside, between;
  double reduce_s_per_byte = 0;     // g
  double held_s_per_byte = 0.1e-9;  // h: written and read once more
  int per_host = 1;

  /// One class for all pairs.
  static Costs uniform(const Link& link, double reduce_s_per_byte) {
    return {.inside = link, .between = link, .reduce_s_per_byte = reduce_s_per_byte};
  }
};

/// Seconds of one collective; problem.rank does not matter.
double predict(const Costs& costs, const Algorithm& algorithm, const Problem& problem, std::int64_t element_bytes);

/// The key of the cheapest algorithm, the same on all ranks, each with the chunks that it would run with (Algorithm::chunks).
std::string cheapest(const Costs& costs, const Problem& problem, std::int64_t element_bytes);

/// The row that offers the collective and has the least `seconds`; of those that differ by no more than rounding errors, the first.
const Entry<Algorithm>& cheapest(Collective collective, const std::function<double(const Entry<Algorithm>&)>& seconds);

/// The algorithm that `auto` takes regardless of cost (Algorithm::settles); empty: the cheapest. `shares_memory`: the ranks of a host can
/// read each other's memory.
std::string_view settled(const Problem& problem, bool shares_memory);

/// Whether ranks of one host that share memory execute all collectives in it, where this is configured: "auto", or an algorithm whose
/// lowering covers that.
bool runs_in_shared_memory(std::string_view algorithm);

/// Bytes, rounded up to one of eight lengths per power of two. Lengths that round to the same one share a choice, so that a group whose
/// lengths always differ (codes of a sparse compressor) only makes a few hundred choices.
std::int64_t rounded_length(std::int64_t bytes);

}  // namespace paceline::schedule
