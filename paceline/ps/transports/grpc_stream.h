// What both sides of the gRPC transport share: streams of bytes, memory that is lent to them, and how connections are made.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/sync_stream.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "paceline/comm/sockets.h"
#include "paceline/ps/transports/grpc.h"
#include "paceline/ps/transports/wire.h"

namespace paceline::ps {

inline constexpr char kSession[] = "/paceline.ParameterServer/Session";  // a worker's stream
inline constexpr char kBeat[] = "/paceline.ParameterServer/Beat";        // its heartbeat

/// The stream is gone.
class Broken : public Error {
 public:
  using Error::Error;
};

/// Memory that slices refer to instead of copying it. wait() returns when no slice refers to it any more; only then may it change.
///
/// The loan may end before that if it has an owner, which the slices keep alive. A server needs this: gRPC keeps what was written to a
/// broken stream until the handler has returned, so a handler that waited for it would wait for itself. Without an owner, the end waits.
class Loan {
 public:
  explicit Loan(std::shared_ptr<const void> owner = nullptr) : state_(std::make_shared<State>()) { state_->owner = std::move(owner); }
  ~Loan() {
    if (!state_->owner) wait();
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  grpc::Slice slice(std::span<const std::byte> memory);
  void wait();

 private:
  struct State {
    std::shared_ptr<const void> owner;
    std::mutex mutex;
    std::condition_variable returned;
    int slices = 0;
  };
  std::shared_ptr<State> state_;
};

using Writer = grpc::internal::WriterInterface<grpc::ByteBuffer>;
using Reader = grpc::internal::ReaderInterface<grpc::ByteBuffer>;

/// A head and its payload, which is lent until the loan's wait(). All throw Broken.
void send(Writer& stream, const std::string& head, std::span<const std::byte> payload, Loan& loan);
std::string receive_head(Reader& stream);
/// Receives exactly this many bytes; DataError if the pieces do not add up to them.
void receive_payload(Reader& stream, std::span<std::byte> into);
/// For texts: refuses more than `most`, and allocates memory as the bytes arrive.
std::string receive_text(Reader& stream, std::int64_t bytes, std::int64_t most);

grpc::ByteBuffer buffer_of(const std::string& bytes);
std::string bytes_of(const grpc::ByteBuffer& buffer);

std::string host_of(const std::string& address);  // "host:port"
/// Throws ConfigError.
comm::SocketAddress socket_address(const std::string& address);
/// Throws ConfigError if `address` is neither on this host nor protected, is not "host:port", or the job's key is missing.
void check_exposure(const std::string& address, const Security& security);
bool uses_tls(const Security& security);
/// Streams that are stuck for this long are cut, whichever side opened their connection.
void limit_stuck(const comm::Socket& socket, Nanoseconds time);
Nanoseconds stuck_limit(Nanoseconds deadline);  // for a connection on which an answer may take this long

/// "worker 3", or a name for server 0, which observes the others under a number of its own.
std::string who(int worker);

/// Starts gRPC for the rest of the process; its log goes to ours, as debug lines.
void hear_grpc();

/// How connections are tuned, the same on both sides.
void tune(grpc::ServerBuilder& builder);
grpc::ChannelArguments channel_arguments(Nanoseconds deadline);  // of one answer

}  // namespace paceline::ps
