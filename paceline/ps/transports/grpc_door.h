// How a connection to a parameter server begins: both sides prove that they know the job's key, and only then does gRPC see it.
//
// The server's reception (comm/reception.h) owns the port. A stranger never reaches TLS or HTTP/2: it gets no stream, no thread and no
// memory but a guest's. A peer that has proved itself continues with TLS if there are certificates. gRPC cannot take over a connection
// that is to be encrypted, so TLS ends in our relay (comm/relay.h), and gRPC gets one end of a socket pair instead of the connection.
//
// Whether a connection is encrypted is part of its purpose, which the proofs name: no attacker in between can downgrade two sides from TLS,
// and if only one of them has certificates, both learn it from a peer that knows the key.
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
  /// Throws ConfigError if the address must not be served, or the certificates are not valid.
  Door(const std::string& address, const Security& security);

  /// Admits peers from now on, not many more than there are `workers`. ConfigError if the port is in use.
  void open(grpc::Server& server, std::function<std::size_t()> workers);
  void close();  ///< before the server is shut down; connections that it has stay
  int port() const { return port_; }

  /// The origin of a peer as text, given gRPC's name for it.
  std::string peer_of(const std::string& name) const;

 private:
  /// A connection that gRPC owns, and closes when it likes: a descriptor of that number with another inode is a different connection.
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
  std::map<int, Caller> callers_;   // by descriptor, from which gRPC makes its name for the connection
  std::optional<comm::Relay> relay_;
  std::optional<comm::Reception> reception_;
};

/// The worker's side: a connection to the server, made before `until`, with both sides authenticated, and encrypted if there are
/// certificates. Returns none, with the reason, if the server cannot be reached now. A server of another job, one that uses TLS while this
/// worker does not (or the other way round), or one whose certificate is wrong is a ConfigError, because waiting would not help. `answer`:
/// how long an answer may take.
std::shared_ptr<grpc::Channel> connect_through_door(const std::string& address, const Security& security, Nanoseconds answer,
                                                    const comm::Deadline& until, std::string& why);

}  // namespace paceline::ps
