// Passes through a tree, from the root to the leaves and back.
//
// Each edge has a level, greater than that of the edge above it. Going down, chunk c crosses an edge of level l in round c + l; going up,
// in round c + (levels − 1 − l): a chunk moves by one level per round, right after the previous one.
#pragma once

#include <optional>

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {

struct Edge {
  int peer = 0;            // a rank
  int level = 0;           // 0 at the root
  int begin = 0, end = 0;  // the team's indices below the edge; only scatter and gather use them
};

/// One rank's position in a tree.
struct Node {
  int levels = 0;                   // of the whole tree
  std::optional<Edge> parent = {};  // none at the root
  std::vector<Edge> children = {};
};

/// The root of all trees is the team's index 0.
Node star(const Team& team);
/// 0 – 1 – 2 – …
Node chain(const Team& team);
/// The minimum spanning (binomial) tree of ⌈lg p⌉ levels: on each, every index that has the data sends it half of the remaining way on.
/// The parent of i is i without its lowest bit 2^k, and i … i+2^k−1 are below i.
Node spanning_tree(const Team& team);
/// The most indices below one child of its root, the child included; size > 1.
int most_below_child(int size);

/// The first round of a pass is `round`; each returns the round after the last.
int tree_broadcast(StepList& list, const Node& node, Range range, std::int64_t chunks, int round);
int tree_reduce(StepList& list, const Node& node, Range range, std::int64_t chunks, int round);
/// Reduce and broadcast; a chunk turns around at the root as soon as it arrives: 2·levels + chunks − 1 rounds.
int tree_allreduce(StepList& list, const Node& node, Range range, std::int64_t chunks, int round);
/// From the root, block i to index i; and back.
int tree_scatter(StepList& list, const Node& node, const Blocks& blocks, int round);
int tree_gather(StepList& list, const Node& node, const Blocks& blocks, int round);

}  // namespace paceline::schedule
