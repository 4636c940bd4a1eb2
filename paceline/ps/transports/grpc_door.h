// How a connection to a parameter server begins: both sides prove that they know the job's key, and only then does gRPC see it.
//
// The server's reception (comm/reception.h) has the port. A stranger never reaches TLS or HTTP/2: it gets no stream, no thread and no
// memory but a guest's. Whoever has proved itself goes on with TLS, where there are certificates. gRPC cannot take over a connection that
// is to be encrypted, so TLS ends in a relay of ours (comm/relay.h), and gRPC gets a socket pair's end in the connection's place.
//
// Whether a connection is encrypted is part of its purpose, which the proofs name: nobody on the way can talk two sides out of TLS, and
// where only one of them has certificates, both learn it from somebody who knows the key.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "paceline/comm/reception.h"
#include "paceline/comm/relay.h"
#include "paceline/ps/transports/grpc_stream.h"

namespace paceline::ps {

/// The server's side.
class Door {
 public:
  /// Throws ConfigError where nobody may listen there, or the certificates are none.
  Door(const std::string& address, const Security& security);

  /// From now on peers are let in, not many more than there are `workers`. ConfigError where the port is taken.
  void open(grpc::Server& server, std::function<std::size_t()> workers);
  void close();  ///< before the server is shut down; connections that it has stay
  int port() const { return port_; }

  /// Where a peer comes from, in words, given what gRPC calls it.
  std::string peer_of(const std::string& name) const;

 private:
  /// A connection that gRPC has, and closes when it likes: a descriptor of that number with another inode is something else.
  struct Caller {
    std::string peer;
    ino_t inode = 0;
  };
  void let_in(comm::Socket socket, const std::string& peer);
  void encrypt(comm::Socket socket, const std::string& peer);
  void hand_over(comm::Socket socket, const std::string& peer);

  std::string address_;
  Security security_;
  std::optional<comm::TlsContext> tls_;
  int port_ = 0;
  std::function<std::size_t()> workers_;
  mutable std::mutex mutex_;
  grpc::Server* server_ = nullptr;  // while the door is open
  std::map<int, Caller> callers_;   // by descriptor, of which gRPC makes its name for the connection
  std::optional<comm::Relay> relay_;
  std::optional<comm::Reception> reception_;
};

/// The worker's side: a connection to the server by the moment `until`, with both sides proved, and encrypted where there are certificates.
/// Returns none where the server cannot be reached now, and says why; a server that is another job's, that uses TLS where this worker does
/// not (or the other way round), or whose certificate is not right is a ConfigError, which waiting would not mend. `answer`: how long an
/// answer on it may take.
std::shared_ptr<grpc::Channel> connect_through_door(const std::string& address, const Security& security, Nanoseconds answer,
                                                    const comm::Deadline& until, std::string& why);

}  // namespace paceline::ps
