// Which ranks are on which hosts.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace paceline::comm {

/// Ranks of one host are neighbours, and every host but the last has `per_host` of them.
struct Topology {
  int per_host = 1;
  int hosts = 1;
  bool scattered = false;  // some host's ranks are not contiguous, or not as many as on the other hosts: each rank then counts as a host
};

/// The topology of ranks, where rank i is on hosts[i].
template <class Host>
Topology topology_of(const std::vector<Host>& hosts) {
  const int size = static_cast<int>(hosts.size());
  int per_host = 1;
  while (per_host < size && hosts[static_cast<std::size_t>(per_host)] == hosts[0]) ++per_host;
  std::vector<Host> seen;
  for (int i = 0; i < size; ++i) {
    const Host& host = hosts[static_cast<std::size_t>(i)];
    const bool first = i % per_host == 0;
    if (first ? std::find(seen.begin(), seen.end(), host) != seen.end() : host != seen.back())
      return {.per_host = 1, .hosts = size, .scattered = true};
    if (first) seen.push_back(host);
  }
  return {.per_host = per_host, .hosts = static_cast<int>(seen.size())};
}

}  // namespace paceline::comm
