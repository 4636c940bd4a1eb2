#include "paceline/ps/transports/service.h"

#include "paceline/ps/transports/grpc.h"
#include "paceline/ps/transports/ranks.h"

namespace paceline::ps {

std::unique_ptr<Service> serve(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
                               ServiceOptions options) {
  if (cluster.ranks) return serve_ranks(cluster, std::move(concurrent), layout, options);
  options.address = cluster.servers.at(static_cast<std::size_t>(cluster.index));
  return std::make_unique<GrpcServer>(std::move(concurrent), layout, options);
}

std::unique_ptr<RemoteClient> join(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options) {
  if (cluster.ranks) return connect_ranks(cluster, layout, options);
  return connect_grpc(cluster.servers, layout, options);
}

}  // namespace paceline::ps
