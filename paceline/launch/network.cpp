#include "paceline/launch/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "paceline/base/descriptor.h"
#include "paceline/base/error.h"
#include "paceline/base/host.h"

namespace paceline::launch {
namespace {

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

bool is_loopback(const sockaddr_in& address) { return (ntohl(address.sin_addr.s_addr) >> 24) == 127; }

std::optional<sockaddr_in> resolve(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  sockaddr_in address;
  std::memcpy(&address, found->ai_addr, sizeof(address));
  ::freeaddrinfo(found);
  return address;
}

/// The source address of packets to there. Nothing is sent: connecting a datagram socket only looks up the route.
std::optional<sockaddr_in> source_towards(sockaddr_in there) {
  const Descriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  there.sin_port = htons(9);
  sockaddr_in here{};
  socklen_t length = sizeof(here);
  const bool good = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&there), sizeof(there)) == 0 &&
                    ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&here), &length) == 0 && !is_loopback(here);
  return good ? std::optional(here) : std::nullopt;
}

std::optional<sockaddr_in> first_interface() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, ::freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    sockaddr_in address;
    std::memcpy(&address, one->ifa_addr, sizeof(address));
    if (!is_loopback(address)) return address;
  }
  return std::nullopt;
}

}  // namespace

bool is_this_host(const std::string& name) {
  const std::string own = host_name();
  const auto without_domain = [](const std::string& full) { return full.substr(0, full.find('.')); };
  return names_loopback(name) || name == own || name == without_domain(own) ||
         (own.find('.') == std::string::npos && without_domain(name) == own);
}

std::string address_towards(const std::string& other) {
  const std::string host = other.substr(other.find('@') + 1);  // user@host; npos + 1 is 0
  std::optional<sockaddr_in> here;
  if (const auto there = resolve(host)) here = source_towards(*there);
  if (!here) here = first_interface();
  if (!here) throw ConfigError(fmt::format("this host has no network address that {} could reach; give one with --master-addr", host));
  return text_of(*here);
}

ReservedPort::ReservedPort() {
  descriptor_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(descriptor_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in wanted{};  // any address, any port
  wanted.sin_family = AF_INET;
  socklen_t length = sizeof(wanted);
  if (::bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&wanted), sizeof(wanted)) != 0 ||
      ::getsockname(descriptor_.get(), reinterpret_cast<sockaddr*>(&wanted), &length) != 0)
    throw ConfigError(fmt::format("cannot find a free port: {}; give one with --master-port", std::strerror(errno)));
  number_ = ntohs(wanted.sin_port);
}

}  // namespace paceline::launch
