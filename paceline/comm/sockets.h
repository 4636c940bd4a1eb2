// Sockets with deadlines: TCP, and the abstract unix names of Linux, which need no port and no file and vanish with their owner.
//
// Every socket here is non-blocking and closes on exec; waits happen in poll() and are bounded by a Deadline. Failures are
// std::system_error with the system's number (ETIMEDOUT after a deadline, ECONNRESET if the peer closed); the caller knows which peer to
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

/// A point in time, as the time left until then.
class Deadline {
 public:
  /// Accepts any number, since a peer may send the largest there is.
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

/// An address to listen at or to connect to.
struct SocketAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string name;  // "10.0.0.1:29500" or "@paceline-…"

  bool is_loopback() const;  ///< reachable from this host alone
};

/// Resolves the host; prefers IPv4, so that all ranks choose alike. Throws ConfigError.
SocketAddress tcp_address(const std::string& host, int port);
SocketAddress abstract_address(const std::string& name);

Socket listen_at(const SocketAddress& endpoint);
/// Why this TCP address cannot be listened on now: address_in_use, address_not_available if it is not this host's, or nothing. The check
/// does not keep other ranks from using it.
std::error_code obstacle_at(const SocketAddress& endpoint);
Socket dial(const SocketAddress& endpoint, const Deadline& deadline);
/// The next connection that waits at a listener, and its origin; no socket if none waits or none can be created (errno).
std::pair<Socket, std::string> accept_from(const Socket& listener);
/// Where a listener actually listens, with the port that the system chose.
int port_of(const Socket& listener);
std::pair<Socket, Socket> socket_pair();

/// The process at the other end of a unix socket; 0 for another kind of socket.
pid_t peer_process(const Socket& socket);
/// True if the other end of a unix socket is a process of this user; always true for TCP, which cannot tell.
bool same_user(const Socket& socket);

void send_all(const Socket& socket, std::string_view bytes, const Deadline& deadline);
std::string receive_exactly(const Socket& socket, std::size_t bytes, const Deadline& deadline);
/// Receives what has arrived: at least one byte and at most a few kilobytes.
std::string receive_some(const Socket& socket, const Deadline& deadline);

}  // namespace paceline::comm
