#include "paceline/comm/shared/shared_endpoint.h"

#include <functional>
#include <limits>
#include <map>

namespace paceline::comm::shared {
namespace {

std::vector<int> ranks_of(const std::vector<int>& hosts, int host) {
  std::vector<int> ranks;
  for (int i = 0; i < static_cast<int>(hosts.size()); ++i)
    if (hosts[static_cast<std::size_t>(i)] == host) ranks.push_back(i);
  return ranks;
}

int place_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

bool several(const std::vector<int>& hosts) { return std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) != hosts.end(); }

/// Where the block of a host's ranks lies: after that of all ranks and those of the hosts with lower numbers.
std::int64_t host_offset(const std::vector<int>& hosts, int host) {
  std::int64_t offset = Block::bytes(static_cast<int>(hosts.size()));
  if (!several(hosts)) return offset;
  std::map<int, int> ranks;  // of each host: how many
  for (int each : hosts) ++ranks[each];
  for (const auto& [other, count] : ranks)
    if (other < host) offset += Block::bytes(count);
  return offset;
}

}  // namespace

std::vector<int> picked(const std::vector<int>& by_rank, const std::vector<int>& ranks) {
  std::vector<int> values;
  values.reserve(ranks.size());
  for (const int rank : ranks) values.push_back(by_rank[static_cast<std::size_t>(rank)]);
  return values;
}

std::vector<int> emulated_hosts(int size, std::int64_t per_host) {
  std::vector<int> hosts(static_cast<std::size_t>(size));
  for (int i = 0; i < size && per_host > 0; ++i) hosts[static_cast<std::size_t>(i)] = i / static_cast<int>(per_host);
  return hosts;
}

std::int64_t SharedEndpoint::block_bytes(const std::vector<int>& hosts) { return host_offset(hosts, std::numeric_limits<int>::max()); }

SharedEndpoint::SharedEndpoint(Agreement agreement, int rank, std::shared_ptr<HostMemory> memory)
    : agreement_(std::move(agreement)),
      memory_(std::move(memory)),
      everyone_(std::make_unique<Group>(rank, agreement_.host_ranks, agreement_.cores, memory_, memory_->address(agreement_.block))),
      mailbox_(*everyone_) {
  if (!several(agreement_.hosts)) return;
  const int host = agreement_.hosts[static_cast<std::size_t>(rank)];
  const std::vector<int> neighbours = ranks_of(agreement_.hosts, host);
  std::byte* block = memory_->address(agreement_.block) + host_offset(agreement_.hosts, host);
  host_ = std::make_unique<Group>(place_in(neighbours, rank), picked(agreement_.host_ranks, neighbours), agreement_.cores, memory_, block);
  host_->ring_in(*everyone_, neighbours);
}

std::unique_ptr<Endpoint> SharedEndpoint::split(const std::vector<int>& members, Communicator& via) {
  Agreement agreement{agreement_.engine, picked(agreement_.host_ranks, members), picked(agreement_.hosts, members), agreement_.cores, {}};
  // The first member of each group provides the block and tells the others.
  std::vector<std::int64_t> places(static_cast<std::size_t>(2 * size()));
  const std::size_t own = 2 * static_cast<std::size_t>(rank()), first = 2 * static_cast<std::size_t>(members.front());
  if (members.front() == rank()) {
    const Location block = memory_->allocate_block(block_bytes(agreement.hosts), static_cast<int>(members.size()));
    places[own] = static_cast<std::int64_t>(block.file), places[own + 1] = static_cast<std::int64_t>(block.offset);
  }
  via.run(all_gather(places));
  agreement.block = {static_cast<std::uint64_t>(places[first]), static_cast<std::uint64_t>(places[first + 1])};
  return std::make_unique<SharedEndpoint>(std::move(agreement), place_in(members, rank()), memory_);
}

}  // namespace paceline::comm::shared
