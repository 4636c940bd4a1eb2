// Sockets with deadlines: TCP, and the abstract unix names of Linux, which need no port and no file and vanish with their owner.
//
// Every socket here is non-blocking and closes on exec; whoever waits does so in poll() and no longer than a Deadline. Failures are
// std::system_error with the system's number (ETIMEDOUT once a deadline passed, ECONNRESET where the peer closed): the caller knows whom to
// name.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "paceline/base/clock.h"
#include "paceline/base/descriptor.h"

namespace paceline::comm {

/// A moment, as what is left until then.
class Deadline {
 public:
  /// Any number will do: one that a peer sent may be the largest there is.
  explicit Deadline(Nanoseconds from_now) : Deadline(SteadyClock().now(), from_now) {}

  bool passed() const { return SteadyClock().now() >= moment_; }
  Nanoseconds left() const { return std::max(moment_ - SteadyClock().now(), Nanoseconds(0)); }
  int poll_ms() const;  ///< rounded up, for poll()
  Deadline or_sooner(Nanoseconds from_now) const { return Deadline(std::min(left(), from_now)); }

 private:
  Deadline(Nanoseconds now, Nanoseconds from_now) : moment_(now + std::clamp(from_now, Nanoseconds(0), Nanoseconds::max() - now)) {}

  Nanoseconds moment_;
};

using Socket = Descriptor;

/// Where somebody listens.
struct SocketAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string name;  // "10.0.0.1:29500" or "@paceline-…"

  bool is_loopback() const;  ///< reaches this host alone
};

/// Resolves the host, preferring IPv4 so that all ranks choose alike. Throws ConfigError.
SocketAddress tcp_address(const std::string& host, int port);
SocketAddress abstract_address(const std::string& name);

Socket listen_at(const SocketAddress& endpoint);
/// Why nobody could listen at this TCP address just now: address_in_use, address_not_available where it is none of this host's, or nothing.
/// Asking keeps no other rank from it.
std::error_code obstacle_at(const SocketAddress& endpoint);
Socket dial(const SocketAddress& endpoint, const Deadline& deadline);
/// The next connection that waits at a listener, and where it comes from; no socket where none waits or there is none to be had (errno).
std::pair<Socket, std::string> accept_from(const Socket& listener);
/// Where a listener really listens: the port that the system chose.
int port_of(const Socket& listener);
std::pair<Socket, Socket> socket_pair();

/// The process at the other end of a unix socket; 0: it is another kind of socket.
pid_t peer_process(const Socket& socket);
/// True where the other end of a unix socket is a process of this user; TCP has no such knowledge and is always true.
bool same_user(const Socket& socket);

void send_all(const Socket& socket, std::string_view bytes, const Deadline& deadline);
std::string receive_exactly(const Socket& socket, std::size_t bytes, const Deadline& deadline);
/// What is there, at least a byte and at most some kilobytes.
std::string receive_some(const Socket& socket, const Deadline& deadline);

}  // namespace paceline::comm
