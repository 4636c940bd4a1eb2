// One worker's stream on the server: passes its requests to its desk one by one, and sends the answers.
#pragma once

#include <atomic>

#include "paceline/ps/transports/desk.h"
#include "paceline/ps/transports/grpc_stream.h"

namespace paceline::ps {

class Session {
 public:
  using Stream = grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  Session(grpc::ServerContext& context, Stream& stream, int worker, std::uint64_t token, std::string peer)
      : context_(context), stream_(stream), peer_(std::move(peer)), connection_(context.peer()), worker_(worker), token_(token) {}

  int worker() const { return worker_; }
  std::uint64_t token() const { return token_; }
  const std::string& peer() const { return peer_; }
  const std::string& connection() const { return connection_; }                      // gRPC's name for it
  std::optional<Task> task() const { return desk_ ? desk_->task() : std::nullopt; }  // its current one

  /// Thread-safe.
  bool is_cut() const { return context_.IsCancelled(); }
  void cut() { context_.TryCancel(); }
  /// The worker was silent for too long.
  void forget() { forgotten_ = true, cut(); }
  bool is_forgotten() const { return forgotten_; }

  /// Answers until the worker leaves. Throws Broken, or DataError if it violates the protocol.
  void serve(ConcurrentServer& concurrent, const ArenaLayout& layout, const ServiceOptions& options);

 private:
  grpc::ServerContext& context_;
  Stream& stream_;
  std::string peer_;  // its address
  std::string connection_;
  int worker_;
  std::uint64_t token_;
  std::atomic<bool> forgotten_ = false;
  std::shared_ptr<Desk> desk_;
};

}  // namespace paceline::ps
