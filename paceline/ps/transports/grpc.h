// Parameter servers and workers as processes, on one host or many, over gRPC.
//
// A worker has one bidirectional stream to each server, with the messages of wire.h. gRPC sends parameters and gradients from where they
// lie, and they are copied once, on arrival, to where they belong. No protocol compiler is involved.
//
// Failures: a worker whose stream breaks has left at once. One that neither sends nor beats for the server's silence limit is forgotten,
// and its task is returned. Workers wait for a server that is gone; when it is back at the same address, they join again and continue. A
// push that was in flight is retried if the server has a journal (ps.replica), else dropped; it is never applied twice.
//
// Workers and servers on different hosts use mutual TLS, after both have proved that they know the job's key (grpc_door.h); without
// certificates, only loopback addresses are allowed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paceline/ps/transports/service.h"

namespace paceline::ps {

class GrpcServer final : public Service {
 public:
  /// ConfigError for an address that cannot be served, or must not be served without certificates.
  GrpcServer(std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout, const ServiceOptions& options);
  ~GrpcServer() override;  // ends all streams, so that their workers have left
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const;
  std::string address() const;  // with the actual port
  std::vector<int> workers() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Joins the servers, whose ranges must cover the arena in the order of the addresses. ConfigError if a server has another model.
std::unique_ptr<RemoteClient> connect_grpc(const std::vector<std::string>& addresses, const ArenaLayout& layout,
                                           const JoinOptions& options = {});

}  // namespace paceline::ps
