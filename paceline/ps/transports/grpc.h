// Parameter servers and workers as processes, on one host or many, over gRPC.
//
// A worker has one bidirectional stream to each server. What it says is in wire.h; parameters and gradients travel as bytes that gRPC takes
// from where they lie and that are copied once, on arrival, to where they belong. There are no messages of a protocol compiler.
//
// Life and death: a worker whose stream breaks has left at once. One that neither speaks nor beats for the host's silence limit is
// forgotten and its task handed back. A server that is gone is waited for; when it is there again, at the same address, the worker joins
// again and goes on. A push that was in flight is retried if the server has a journal (ps.replica), else dropped; it is never applied
// twice.
//
// Workers and servers that do not share a host use mutual TLS, after both have proved that they know the job's key (grpc_door.h); without
// certificates only loopback addresses are served and called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paceline/ps/transports/service.h"

namespace paceline::ps {

class GrpcServer final : public Service {
 public:
  /// ConfigError: an address that cannot be served, or may not be without certificates.
  GrpcServer(std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout, const ServiceOptions& options);
  ~GrpcServer() override;  // ends all streams; their workers have left
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  std::string address() const;  // with the port that was found
  std::vector<int> workers() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Joins the servers, whose ranges must be those of the arena in the order of the addresses. ConfigError where a server has another model.
std::unique_ptr<RemoteClient> connect_grpc(const std::vector<std::string>& addresses, const ArenaLayout& layout,
                                           const JoinOptions& options = {});

}  // namespace paceline::ps
