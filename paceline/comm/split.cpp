#include "paceline/comm/split.h"

#include <algorithm>

namespace paceline::comm {

std::vector<int> members_of(Communicator& group, int color, int key) {
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(group.size()));
  const auto told_by = [&](int peer) { return all.data() + 2 * peer; };
  told_by(group.rank())[0] = color, told_by(group.rank())[1] = key;
  group.run(all_gather(all));
  std::vector<int> members;
  for (int peer = 0; peer < group.size(); ++peer)
    if (told_by(peer)[0] == color) members.push_back(peer);
  std::ranges::stable_sort(members, {}, [&](int peer) { return told_by(peer)[1]; });
  return members;
}

}  // namespace paceline::comm
