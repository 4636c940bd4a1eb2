// How a connection to a parameter server begins over gRPC: both sides prove that they know the job's key, and only then does gRPC see it.
//
//   plain   the server's own reception (comm/reception.h) has the port, and hands gRPC the connections whose peer has proved itself.
//           A stranger never reaches HTTP/2: it gets no stream, no thread and no memory but a guest's.
//   TLS     gRPC has the port, because it cannot take over a connection that is to be encrypted. Whoever has no certificate ends in the TLS
//           handshake; the proofs are the first messages of each stream, and streams that have not joined are few and short-lived.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "paceline/comm/reception.h"
#include "paceline/ps/transports/grpc_stream.h"

namespace paceline::ps {

/// The server's side.
class Door {
 public:
  /// Throws ConfigError where nobody may listen there. Before the server is built.
  Door(const std::string& address, const Security& security, grpc::ServerBuilder& builder);

  /// From now on peers are let in, not many more than there are `workers`. ConfigError where the port is taken.
  void open(grpc::Server& server, std::function<std::size_t()> workers);
  void close() { reception_.reset(); }  ///< before the server is shut down
  int port() const { return port_; }

  /// The stream's peer proves itself, where its connection has not. Throws Broken, also where it does not know the key.
  void challenge(Writer& out, Reader& in, const std::string& peer) const;
  /// Where a peer comes from, in words, given what gRPC calls it.
  std::string peer_of(const std::string& name) const;

 private:
  /// A connection that gRPC has, and closes when it likes: a descriptor of that number with another inode is something else.
  struct Caller {
    std::string peer;
    ino_t inode = 0;
  };
  void let_in(grpc::Server& server, comm::Socket socket, const std::string& peer, std::size_t workers);

  std::string address_;
  Security security_;
  bool tls_;
  int port_ = 0;
  comm::Socket listener_;
  mutable std::mutex mutex_;
  std::map<int, Caller> callers_;  // by descriptor, of which gRPC makes its name for the connection
  std::optional<comm::Reception> reception_;
};

/// The worker's side: a connection to the server by the moment `until`, with both sides proved as far as they can be before a stream.
/// Returns none where the server cannot be reached now, and says why; a server that is another job's, or that uses TLS where this worker
/// does not (or the other way round), is a ConfigError, which waiting would not mend. `answer`: how long an answer on it may take.
std::shared_ptr<grpc::Channel> connect_through_door(const std::string& address, const Security& security, Nanoseconds answer,
                                                    const comm::Deadline& until, std::string& why);
/// On the worker's new stream, before anything else.
void answer_challenge(Writer& out, Reader& in, const Security& security);

}  // namespace paceline::ps
