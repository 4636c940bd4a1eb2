// shm: ranks are processes of one host. Collectives run directly on memory that all of them map.
#include <set>

#include <fmt/format.h>

#include "paceline/comm/engines/all.h"
#include "paceline/comm/engines/common.h"
#include "paceline/comm/shared/process_memory.h"
#include "paceline/comm/shared/shared_endpoint.h"

namespace paceline::comm {

std::unique_ptr<Endpoint> connect_shm(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store) {
  using shared::SharedEndpoint;
  SharedEndpoint::Agreement agreement{
      .engine = "shm", .host_ranks = {}, .hosts = shared::emulated_hosts(world.size, config.per_host), .cores = world.cores, .block = {}};
  const auto neighbours = shared::meet_neighbours(world.rank, exchange_through(store, world, "shm", config.connect_deadline(world)),
                                                  [&](int) { return SharedEndpoint::block_bytes(agreement.hosts); });
  if (static_cast<int>(neighbours.ranks.size()) != world.size)
    throw ConfigError(fmt::format("comm.engine=shm needs all ranks on one host, but they are on {}; use comm.engine=gloo or mpi",
                                  std::set<int>(neighbours.hosts.begin(), neighbours.hosts.end()).size()));
  agreement.host_ranks = neighbours.ranks;
  agreement.block = neighbours.block;
  return std::make_unique<SharedEndpoint>(std::move(agreement), world.rank, neighbours.memory);
}

}  // namespace paceline::comm
