#include "paceline/schedule/passes/tree.h"

#include <algorithm>
#include <bit>

namespace paceline::schedule {
namespace {

/// The range that crosses an edge as chunk c.
using Cargo = std::function<Range(const Edge& edge, int c)>;

Cargo chunks_of(Range range, std::int64_t chunks) {
  return [=](const Edge&, int c) { return cut(range, static_cast<int>(chunks), c); };
}

Cargo blocks_below(const Blocks& blocks) {
  return [&blocks](const Edge& edge, int) { return stretch(blocks, edge.begin, edge.end); };
}

int down(StepList& list, const Node& node, std::int64_t chunks, int round, const Cargo& cargo) {
  for (int c = 0; c < chunks; ++c) {
    if (node.parent) list.round(round + c + node.parent->level).receive(node.parent->peer, cargo(*node.parent, c));
    for (const Edge& child : node.children) list.round(round + c + child.level).send(child.peer, cargo(child, c));
  }
  return round + static_cast<int>(chunks) + node.levels - 1;
}

int up(StepList& list, const Node& node, std::int64_t chunks, int round, Step::Kind arrival, const Cargo& cargo) {
  const int last = node.levels - 1;
  for (int c = 0; c < chunks; ++c) {
    for (const Edge& child : node.children) list.round(round + c + last - child.level).add(arrival, child.peer, cargo(child, c));
    if (node.parent) list.round(round + c + last - node.parent->level).send(node.parent->peer, cargo(*node.parent, c));
  }
  return round + static_cast<int>(chunks) + last;
}

}  // namespace

Node star(const Team& team) {
  Node node{.levels = team.size > 1 ? 1 : 0};
  if (team.me > 0) {
    node.parent = Edge{team.rank(0), 0, team.me, team.me + 1};
  } else {
    for (int i = 1; i < team.size; ++i) node.children.push_back({team.rank(i), 0, i, i + 1});
  }
  return node;
}

Node chain(const Team& team) {
  Node node{.levels = team.size - 1};
  const int me = team.me;
  if (me > 0) node.parent = Edge{team.rank(me - 1), me - 1, me, team.size};
  if (me + 1 < team.size) node.children.push_back({team.rank(me + 1), me, me + 1, team.size});
  return node;
}

Node spanning_tree(const Team& team) {
  Node node{.levels = ceil_log2(team.size)};
  const int me = team.me;
  const auto edge = [&](int peer, int lower, int bit) {
    return Edge{team.rank(peer), node.levels - 1 - bit, lower, std::min(lower + (1 << bit), team.size)};
  };
  const int lowest = me > 0 ? std::countr_zero(static_cast<unsigned>(me)) : node.levels;
  if (me > 0) node.parent = edge(me & (me - 1), me, lowest);
  for (int bit = lowest - 1; bit >= 0; --bit) {
    const int child = me + (1 << bit);
    if (child < team.size) node.children.push_back(edge(child, child, bit));
  }
  return node;
}

int most_below_child(int size) {
  const int farthest = 1 << (ceil_log2(size) - 1);  // the child of level 0, with all after it; the next one has half of its bit
  return std::max(size - farthest, farthest / 2);
}

int tree_broadcast(StepList& list, const Node& node, Range range, std::int64_t chunks, int round) {
  return down(list, node, chunks, round, chunks_of(range, chunks));
}

int tree_reduce(StepList& list, const Node& node, Range range, std::int64_t chunks, int round) {
  return up(list, node, chunks, round, Step::Kind::reduce, chunks_of(range, chunks));
}

int tree_allreduce(StepList& list, const Node& node, Range range, std::int64_t chunks, int round) {
  tree_reduce(list, node, range, chunks, round);
  return tree_broadcast(list, node, range, chunks, round + node.levels);
}

int tree_scatter(StepList& list, const Node& node, const Blocks& blocks, int round) {
  return down(list, node, 1, round, blocks_below(blocks));
}

int tree_gather(StepList& list, const Node& node, const Blocks& blocks, int round) {
  return up(list, node, 1, round, Step::Kind::receive, blocks_below(blocks));
}

}  // namespace paceline::schedule
