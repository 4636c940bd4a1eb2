// What grpc.h declares, in a build without gRPC.
#if !PACELINE_WITH_GRPC

#include "paceline/base/error.h"
#include "paceline/ps/transports/grpc.h"

namespace paceline::ps {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError(
      "this Paceline was built without gRPC; install libgrpc++-dev (tools/install) and build again, or choose ps.executor=threads");
}

}  // namespace

class GrpcServer::Impl {};
GrpcServer::GrpcServer(std::shared_ptr<ConcurrentServer>, const ArenaLayout&, const ServiceOptions&) { refuse(); }
GrpcServer::~GrpcServer() = default;
int GrpcServer::port() const { refuse(); }
std::string GrpcServer::address() const { refuse(); }
std::vector<int> GrpcServer::workers() const { refuse(); }

std::unique_ptr<RemoteClient> connect_grpc(const std::vector<std::string>&, const ArenaLayout&, const JoinOptions&) { refuse(); }

}  // namespace paceline::ps

#endif
