#include <string>

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

// Each is defined in the file of the same name.
Algorithm direct();
Algorithm ring();
Algorithm bucket();
Algorithm tree();
Algorithm butterfly();
Algorithm recursive_doubling();
Algorithm double_binary_tree();
Algorithm hierarchical();
Algorithm torus2d();

std::span<const Entry<Algorithm>> algorithms() {
  static const Entry<Algorithm> table[] = {
      {"direct", "every rank with every other, in one or two rounds", direct()},
      {"ring", "parts travel around a ring; least traffic, most rounds; chains for broadcast and reduce", ring()},
      {"bucket", "rings; for broadcast and reduce also a tree that scatters or gathers (BKT)", bucket()},
      {"tree", "minimum spanning tree (MST), pipelined by chunks", tree()},
      {"butterfly", "recursive halving, then recursive doubling (Rabenseifner)", butterfly()},
      {"recursive_doubling", "fewest rounds; sends whole buffers", recursive_doubling()},
      {"double_binary_tree", "two trees, each with half of the buffer, pipelined by chunks", double_binary_tree()},
      {"hierarchical", "within hosts, then across hosts, then within hosts again", hierarchical()},
      {"torus2d", "rings along both sides of a grid", torus2d()},
  };
  return table;
}

std::string_view configured_for(std::string_view key, Collective collective) {
  const auto& entry = find(algorithms(), "algorithm", key);
  return entry.make.offer(collective) ? entry.key : "ring";
}

const Entry<Algorithm>& algorithm_for(std::string_view key, Collective collective) {
  const auto& entry = find(algorithms(), "algorithm", key);
  if (entry.make.offer(collective)) return entry;
  std::string message = "algorithm '" + std::string(key) + "' does not offer " + std::string(name_of(collective)) + "; these do:";
  const char* comma = " ";
  for (const auto& other : algorithms()) {
    if (!other.make.offer(collective)) continue;
    message.append(comma).append(other.key);
    comma = ", ";
  }
  throw ConfigError(message);
}

}  // namespace paceline::schedule
