#include "paceline/comm/communicator.h"

namespace paceline::comm {

std::vector<int> Communicator::hosts() const {
  std::vector<int> hosts(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) hosts[static_cast<std::size_t>(peer)] = peer / topology().per_host;
  return hosts;
}

}  // namespace paceline::comm
