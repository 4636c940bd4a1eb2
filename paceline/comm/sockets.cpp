#include "paceline/comm/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

namespace paceline::comm {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kBacklog = 1024;
constexpr std::size_t kSome = 16 << 10;
constexpr std::chrono::milliseconds kQueuePause(1);

[[noreturn]] void fail(const char* attempt, int number = errno) { throw std::system_error(number, std::system_category(), attempt); }

const sockaddr* raw(const SocketAddress& endpoint) { return reinterpret_cast<const sockaddr*>(&endpoint.address); }

Socket open_socket(const SocketAddress& endpoint) {
  Socket socket(::socket(endpoint.address.ss_family, kFlags, 0));
  if (!socket) fail("socket");
  return socket;
}

Socket bind_at(const SocketAddress& endpoint) {
  Socket socket = open_socket(endpoint);
  const int on = 1;  // a job that just ended does not block its port, and neither does a check whether it is free
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), raw(endpoint), endpoint.length) != 0) fail("bind");
  return socket;
}

/// Disables Nagle's algorithm.
void no_delay(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // not for unix sockets, which do not need it
}

void wait_for(const Socket& socket, short events, const Deadline& deadline) {
  pollfd entry{socket.get(), events, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return;
    if (ready == 0) fail("wait", ETIMEDOUT);
    if (errno != EINTR) fail("poll");
  }
}

/// AF_UNIX, AF_INET, …; −1 if the system does not say.
int domain_of(const Socket& socket) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 ? domain : -1;
}

/// Process and user at the other end of a unix socket.
std::optional<ucred> credentials_of_peer(const Socket& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? std::optional(peer) : std::nullopt;
}

std::string describe_peer(const Socket& socket, const sockaddr_storage& address, socklen_t length) {
  if (address.ss_family == AF_UNIX) {
    const std::optional<ucred> peer = credentials_of_peer(socket);
    return peer ? fmt::format("pid {} (user {})", peer->pid, peer->uid) : "this host";
  }
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

int Deadline::poll_ms() const {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

bool SocketAddress::is_loopback() const {
  if (address.ss_family == AF_UNIX) return true;
  if (address.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(ip.sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

SocketAddress tcp_address(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw ConfigError(fmt::format("cannot find the address of '{}': {}; set MASTER_ADDR to a name or number that every host knows", host,
                                  error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  const addrinfo* best = found;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    if (one->ai_family == AF_INET) {
      best = one;
      break;
    }

  SocketAddress endpoint;
  std::memcpy(&endpoint.address, best->ai_addr, best->ai_addrlen);
  endpoint.length = best->ai_addrlen;
  char number[NI_MAXHOST] = "?";
  ::getnameinfo(best->ai_addr, best->ai_addrlen, number, sizeof(number), nullptr, 0, NI_NUMERICHOST);
  endpoint.name = best->ai_family == AF_INET6 ? fmt::format("[{}]:{}", number, port) : fmt::format("{}:{}", number, port);
  return endpoint;
}

SocketAddress abstract_address(const std::string& name) {
  SocketAddress endpoint;
  auto& address = reinterpret_cast<sockaddr_un&>(endpoint.address);
  ensure(name.size() < sizeof(address.sun_path), "an abstract socket's name is short");
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the leading zero makes it abstract
  endpoint.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  endpoint.name = "@" + name;
  return endpoint;
}

Socket listen_at(const SocketAddress& endpoint) {
  Socket socket = bind_at(endpoint);
  if (::listen(socket.get(), kBacklog) != 0) fail("listen");
  return socket;
}

std::error_code obstacle_at(const SocketAddress& endpoint) {
  try {
    bind_at(endpoint);
    return {};
  } catch (const std::system_error& error) {
    return error.code();
  }
}

Socket dial(const SocketAddress& endpoint, const Deadline& deadline) {
  Socket socket = open_socket(endpoint);
  while (::connect(socket.get(), raw(endpoint), endpoint.length) != 0) {
    if (errno == EAGAIN && !deadline.passed()) {  // the queue of a unix socket is full, and nothing signals when it is not
      std::this_thread::sleep_for(kQueuePause);
      continue;
    }
    if (errno != EINPROGRESS) fail("connect");
    wait_for(socket, POLLOUT, deadline);
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) fail("connect");
    if (error != 0) fail("connect", error);
    break;
  }
  no_delay(socket);
  return socket;
}

std::pair<Socket, std::string> accept_from(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  Socket socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return {};
  no_delay(socket);
  std::string peer = describe_peer(socket, address, length);
  return {std::move(socket), std::move(peer)};
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::pair<Socket, Socket> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, kFlags, 0, ends) != 0) fail("socketpair");
  return {Socket(ends[0]), Socket(ends[1])};
}

pid_t peer_process(const Socket& socket) {
  const std::optional<ucred> peer = domain_of(socket) == AF_UNIX ? credentials_of_peer(socket) : std::nullopt;
  return peer ? peer->pid : 0;
}

bool same_user(const Socket& socket) {
  const int domain = domain_of(socket);
  if (domain != AF_UNIX) return domain >= 0;
  const std::optional<ucred> peer = credentials_of_peer(socket);
  return peer && peer->uid == ::geteuid();
}

void send_all(const Socket& socket, std::string_view bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN) wait_for(socket, POLLOUT, deadline);
    else if (errno != EINTR) fail("send");
  }
}

std::string receive_exactly(const Socket& socket, std::size_t bytes, const Deadline& deadline) {
  std::string data(bytes, '\0');
  for (std::size_t have = 0; have < bytes;) {
    const ssize_t got = ::recv(socket.get(), data.data() + have, bytes - have, 0);
    if (got > 0) have += static_cast<std::size_t>(got);
    else if (got == 0) fail("receive", ECONNRESET);
    else if (errno == EAGAIN) wait_for(socket, POLLIN, deadline);
    else if (errno != EINTR) fail("receive");
  }
  return data;
}

std::string receive_some(const Socket& socket, const Deadline& deadline) {
  std::string data(kSome, '\0');
  for (;;) {
    const ssize_t got = ::recv(socket.get(), data.data(), data.size(), 0);
    if (got > 0) return data.resize(static_cast<std::size_t>(got)), data;
    if (got == 0) fail("receive", ECONNRESET);
    if (errno == EAGAIN) wait_for(socket, POLLIN, deadline);
    else if (errno != EINTR) fail("receive");
  }
}

}  // namespace paceline::comm
