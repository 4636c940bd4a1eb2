#include "paceline/ps/transports/service.h"

#include "paceline/ps/transports/grpc.h"
#include "paceline/ps/transports/ranks.h"

namespace paceline::ps {

std::unique_ptr<Service> serve(const Cluster& cluster, std::shared_ptr<Host> host, const Layout& layout, ServiceOptions options) {
  if (cluster.ranks) return serve_ranks(cluster, std::move(host), layout, options);
  options.address = cluster.servers.at(static_cast<std::size_t>(cluster.index));
  return std::make_unique<GrpcServer>(std::move(host), layout, options);
}

std::unique_ptr<RemoteClient> join(const Cluster& cluster, const Layout& layout, const JoinOptions& options) {
  if (cluster.ranks) return connect_ranks(cluster, layout, options);
  return connect_grpc(cluster.servers, layout, options);
}

}  // namespace paceline::ps
