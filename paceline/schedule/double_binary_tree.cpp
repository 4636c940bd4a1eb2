// double_binary_tree: two binary trees, each with one half of the buffer, so that a rank that only receives in one tree works in the other
// (Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009; the trees of
// NCCL 2.4). Logarithmic rounds at nearly a ring's traffic. p ranks, n elements, C chunks, L = ⌈lg p⌉:
//
//                rounds      sent                        reduced
//   allreduce    2L+C−1      n + min(p−2, 2)·n/2         n
//   broadcast    L+C−1       n                           0
//   reduce       L+C−1       n                           n
//
// The root is above both trees, which consist of the m = p − 1 others, counted from it. In the first, roles 1 … m are in-order: role i
// with lowest bit 2^k is the parent of i ± 2^(k−1), so odd roles are leaves. In the second, every rank has the role of its successor.
//
// Invariant: only the root has children in both trees, since neighbouring roles differ in parity and role 1, which m has, is a
// leaf.
#include <algorithm>
#include <bit>

#include "paceline/schedule/method.h"
#include "paceline/schedule/passes/tree.h"
#include "paceline/schedule/schedule.h"

namespace paceline::schedule {
namespace double_binary_tree_steps {

constexpr int kTrees = 2;

int lowest_bit(int role) { return role & -role; }

/// If the in-order parent is past the end, the next ancestor that exists is the role without its lowest bit.
int parent_of(int role, int size) {
  const int bit = lowest_bit(role), above = (role - bit) | (2 * bit);
  return above < size ? above : role - bit;
}

std::vector<int> children_of(int role, int size) {
  if (role == 0) return size > 1 ? std::vector<int>{static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1)))} : std::vector<int>{};
  std::vector<int> children;
  int offset = lowest_bit(role) / 2;
  if (offset > 0) children.push_back(role - offset);
  while (offset > 0 && role + offset >= size) offset /= 2;
  if (offset > 0) children.push_back(role + offset);
  return children;
}

int depth_of(int role, int size) {
  int depth = 0;
  for (; role != 0; role = parent_of(role, size)) ++depth;
  return depth;
}

/// This rank's place in the first (shift 0) or second (shift 1) tree.
Node place(const Team& team, int shift) {
  const int others = team.size - 1;
  const auto rank_of = [&](int role) { return team.rank(role == 0 ? 0 : (role - 1 - shift + others) % others + 1); };
  const int role = team.me == 0 ? 0 : (team.me - 1 + shift) % others + 1, depth = depth_of(role, team.size);
  Node node{.levels = ceil_log2(team.size)};
  if (role != 0) node.parent = Edge{.peer = rank_of(parent_of(role, team.size)), .level = depth - 1};
  for (const int child : children_of(role, team.size)) node.children.push_back({.peer = rank_of(child), .level = depth});
  return node;
}

template <auto pass>
void in_both(StepList& list, const Problem& p) {
  for (int t = 0; t < kTrees; ++t) pass(list, place(from_root(p), t), cut(whole(p), kTrees, t), p.chunks, 0);
}

int pipelined(const Problem& p, int passes) { return passes * ceil_log2(p.size) + static_cast<int>(p.chunks) - 1; }

Counts allreduce_counts(const Problem& p) { return {pipelined(p, 2), p.count + std::min(p.size - 2, 2) * p.count / 2, p.count}; }
Counts broadcast_counts(const Problem& p) { return {pipelined(p, 1), p.count, 0}; }
Counts reduce_counts(const Problem& p) { return {pipelined(p, 1), p.count, p.count}; }

constexpr Method kMethods[] = {
    {Collective::allreduce, in_both<tree_allreduce>, allreduce_counts},
    {Collective::broadcast, in_both<tree_broadcast>, broadcast_counts},
    {Collective::reduce, in_both<tree_reduce>, reduce_counts},
};

}  // namespace double_binary_tree_steps

Algorithm double_binary_tree() { return algorithm<double_binary_tree_steps::kMethods>(); }

}  // namespace paceline::schedule
