// hierarchical: inside a host, across hosts, inside again, so that the network between hosts carries as little as possible. p ranks, k per
// host, H = ⌈p/k⌉ hosts, n elements, C chunks. If k divides p, each rank carries its slice, a k-th, across (n/k in a ring of H), after and
// before direct exchanges inside:
//
//                    rounds           sent by a rank                      reduced                             across, by a host
//   allreduce        2(H−1) + 2 + C−1 2(k−1)/k·n + 2(H−1)/H·n/k           (k−1)/k·n + (H−1)/H·n/k             2(H−1)/H·n
//   reduce_scatter   H−1 + 1          (k−1)/k·n + (H−1)/H·n/k             (k−1)/k·n + (H−1)/H·n/k             (H−1)/H·n
//   all_gather       H−1 + 1          (H−1)/H·n/k + (k−1)/k·n             0                                   (H−1)/H·n
//
// (no round inside if k = 1). An allreduce is pipelined in chunks, one round apart, so that the network is busy while other chunks are
// reduced and gathered inside. If the last host is smaller (q < k ranks), the first rank of each host leads: it reduces or gathers for its
// host, takes part in the ring of leaders, and broadcasts or scatters:
//
//   allreduce        2(H−1) + 2       (k−1)·n + 2(H−1)/H·n                (k−1)·n + (H−1)/H·n                 2(H−1)/H·n
//   reduce_scatter   H−1 + 2          n                                   k·n − q/p·n                         n − its own ranks' parts
//   all_gather       H−1 + 2          k·n − q/p·n                         0                                   n − the next host's parts
//
// Rooted collectives go along a chain of hosts, in which each host's head (the root, or the first rank) also serves its host; l is the
// number of levels, H, or H−1 if the chain's last host has one rank; b the most peers that one head serves:
//
//   broadcast        l+C−1            b·n                                 0                                   n
//   reduce           l+C−1            n                                   b·n                                 n
//   barrier          2l               0                                   0                                   0
//
// Invariant: what leaves a host has been reduced over it, and what enters it enters once.
//
// Lowering: for an allreduce among hosts of k ranks each that share memory. The work inside a host is one pass over memory, and a few
// chunks at a time are in flight.
#include <algorithm>

#include "paceline/schedule/closed_rounds.h"
#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/direct.h"
#include "paceline/schedule/passes/ring.h"
#include "paceline/schedule/passes/tree.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace hierarchical_steps {

struct Hosts {
  explicit Hosts(const Problem& p)
      : size(p.size), each(std::min(p.per_host, p.size)), count((p.size + each - 1) / each), mine(p.rank / each), local(p.rank % each) {}

  int size, each, count;  // p, k, H
  int mine, local;        // my host and my index in it

  bool even() const { return size % each == 0; }
  int ranks(int host) const { return std::min(each, size - host * each); }
  Team inside() const { return {.size = ranks(mine), .me = local, .first = mine * each, .around = size}; }
  /// The ranks of all hosts that have my index.
  Team across() const { return {.size = count, .me = mine, .first = local, .stride = each, .around = size}; }
};

// If all hosts have k ranks
// -----------------------------------------------------------------------------------------------------------------

/// One chunk of an allreduce: slices are cut from one range. `round` is its first.
void chunk_by_slices(StepList& list, Range chunk, const Hosts& hosts, int round) {
  const Blocks slices = cut(chunk, hosts.each), across = cut(slices(hosts.local), hosts.count);
  round = direct_pass(list, hosts.inside(), slices, Collective::reduce_scatter, round);
  round = ring_pass(list, hosts.across(), across, Collective::allreduce, round);
  direct_pass(list, hosts.inside(), slices, Collective::all_gather, round);
}

/// In the halves of an allreduce, a slice consists of the parts of all ranks with one index, which are k parts apart.
void half_by_slices(StepList& list, const Problem& p, const Hosts& hosts) {
  const Blocks across = [&](int host) { return part(p.count, p.size, host * hosts.each + hosts.local); };
  const auto inside = [&](int round) {
    int next = round;
    for (int stretch = 0; stretch < hosts.count; ++stretch) {
      const Blocks blocks = [&](int local) { return part(p.count, p.size, stretch * hosts.each + local); };
      next = direct_pass(list, hosts.inside(), blocks, p.collective, round);
    }
    return next;
  };
  int round = 0;
  if (scatters(p.collective)) round = inside(round);
  round = ring_pass(list, hosts.across(), across, p.collective, round);
  if (gathers(p.collective)) inside(round);
}

void by_slices(StepList& list, const Problem& p, const Hosts& hosts) {
  if (p.collective != Collective::allreduce) return half_by_slices(list, p, hosts);
  for (int c = 0; c < p.chunks; ++c) chunk_by_slices(list, cut(whole(p), static_cast<int>(p.chunks), c), hosts, c);
}

// If the last host is smaller
// ---------------------------------------------------------------------------------------------------------------

void by_leaders(StepList& list, const Problem& p, const Hosts& hosts) {
  const Node star_inside = star(hosts.inside());
  const Blocks inside = [&](int local) { return part(p.count, p.size, hosts.mine * hosts.each + local); };
  const Blocks across = [&](int host) {
    if (p.collective == Collective::allreduce) return cut(whole(p), hosts.count, host);
    return stretch(parts(p), host * hosts.each, host * hosts.each + hosts.ranks(host));
  };
  if (scatters(p.collective)) tree_reduce(list, star_inside, whole(p), 1, 0);
  else tree_gather(list, star_inside, inside, 0);
  if (hosts.local == 0) ring_pass(list, hosts.across(), across, p.collective, 1);
  const int round = 1 + halves(p.collective) * (hosts.count - 1);
  if (gathers(p.collective)) tree_broadcast(list, star_inside, whole(p), 1, round);
  else tree_scatter(list, star_inside, inside, round);
}

void in_three_phases(StepList& list, const Problem& p) {
  const Hosts hosts(p);
  if (hosts.even()) by_slices(list, p, hosts);
  else by_leaders(list, p, hosts);
}

Counts in_three_phases_counts(const Problem& p) {
  const Hosts hosts(p);
  const std::int64_t n = p.count, k = hosts.each, last = hosts.ranks(hosts.count - 1) * n / p.size;
  const int behind = p.collective == Collective::allreduce ? static_cast<int>(p.chunks) - 1 : 0;
  if (hosts.even())
    return direct_counts(hosts.each, n, p.collective) + ring_counts(hosts.count, n / k, p.collective) + Counts{behind, 0, 0};
  const int rounds = halves(p.collective) * (hosts.count - 1) + 2;
  if (p.collective == Collective::reduce_scatter) return {rounds, n, k * n - last};
  if (p.collective == Collective::all_gather) return {rounds, k * n - last, 0};
  return ring_counts(hosts.count, n, p.collective) + Counts{2, (k - 1) * n, (k - 1) * n};
}

// With a root
// ----------------------------------------------------------------------------------------------------------------------------------

/// The hosts as a chain that begins at the root's.
struct HostChain {
  explicit HostChain(const Problem& p) : hosts(p), root(p.root), first(p.root / hosts.each) {}

  Hosts hosts;
  int root, first;

  int host(int index) const { return (first + index) % hosts.count; }
  int head(int index) const { return index == 0 ? root : host(index) * hosts.each; }
  int levels() const { return hosts.count - 1 + (hosts.ranks(host(hosts.count - 1)) > 1); }
  /// Peers that the head of this host serves: the next head and its host's other ranks.
  int serves(int index) const { return hosts.ranks(host(index)) - 1 + (index + 1 < hosts.count); }
};

Node place(const Problem& p) {
  const HostChain chain(p);
  const Hosts& hosts = chain.hosts;
  const int index = (hosts.mine - chain.first + hosts.count) % hosts.count, head = chain.head(index);
  Node node{.levels = chain.levels()};
  if (p.rank != head) {
    node.parent = Edge{.peer = head, .level = index};
    return node;
  }
  if (index > 0) node.parent = Edge{.peer = chain.head(index - 1), .level = index - 1};
  if (index + 1 < hosts.count) node.children.push_back({.peer = chain.head(index + 1), .level = index});
  for (int local = 0; local < hosts.ranks(hosts.mine); ++local) {
    const int rank = hosts.mine * hosts.each + local;
    if (rank != head) node.children.push_back({.peer = rank, .level = index});
  }
  return node;
}

template <auto pass>
void along_chain(StepList& list, const Problem& p) {
  pass(list, place(p), whole(p), p.chunks, 0);
}

/// b.
std::int64_t most_served(const HostChain& chain) {
  int most = 0;
  for (int index = 0; index < chain.hosts.count; ++index) most = std::max(most, chain.serves(index));
  return most;
}

int chain_rounds(const Problem& p, int passes) { return passes * HostChain(p).levels() + static_cast<int>(p.chunks) - 1; }

Counts broadcast_counts(const Problem& p) { return {chain_rounds(p, 1), most_served(HostChain(p)) * p.count, 0}; }
Counts reduce_counts(const Problem& p) { return {chain_rounds(p, 1), p.count, most_served(HostChain(p)) * p.count}; }
Counts barrier_counts(const Problem& p) { return {chain_rounds(p, 2), 0, 0}; }

constexpr Method kMethods[] = {
    {Collective::allreduce, in_three_phases, in_three_phases_counts},
    {Collective::reduce_scatter, in_three_phases, in_three_phases_counts},
    {Collective::all_gather, in_three_phases, in_three_phases_counts},
    {Collective::broadcast, along_chain<tree_broadcast>, broadcast_counts},
    {Collective::reduce, along_chain<tree_reduce>, reduce_counts},
    {Collective::barrier, along_chain<tree_allreduce>, barrier_counts},
};

/// Several hosts with the same number of ranks, and more than one rank each.
bool has_two_levels(const Problem& p) {
  return p.collective == Collective::allreduce && p.per_host > 1 && p.per_host < p.size && p.size % p.per_host == 0;
}

constexpr std::int64_t kSliceBytes = 1 << 20;  // of a chunk that one rank carries across: several network pieces, and quickly reduced

std::int64_t chunks(const Problem& p, std::int64_t bytes) {
  if (has_two_levels(p)) return std::max<std::int64_t>(1, bytes / (kSliceBytes * p.per_host));
  return p.collective == Collective::allreduce ? 1 : pipeline_chunks(p, bytes);
}

}  // namespace hierarchical_steps

Algorithm hierarchical() {
  Algorithm made = algorithm<hierarchical_steps::kMethods>();
  made.chunks = hierarchical_steps::chunks;
  made.lowering = {.help = "inside a host, every rank reads what it needs in the others' memory; hosts still exchange messages",
                   .covers = hierarchical_steps::has_two_levels};
  made.rounds = hierarchical_rounds, made.by_host = true;
  made.settles = [](const Problem& problem, bool) { return problem.per_host > 1 && problem.collective == Collective::allreduce; };
  return made;
}

}  // namespace paceline::schedule
