#include "paceline/base/host.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "paceline/base/descriptor.h"

namespace paceline {
namespace {

/// Connecting a datagram socket sends nothing; it only asks for the route.
std::string source_of_route(const addrinfo& to) {
  const Descriptor probe(::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  auto* address = reinterpret_cast<sockaddr*>(&own);
  const bool found = ::connect(probe.get(), to.ai_addr, to.ai_addrlen) == 0 && ::getsockname(probe.get(), address, &length) == 0;
  return found ? number_of(address) : "";
}

}  // namespace

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

bool names_loopback(const std::string& address) { return address == "localhost" || address.starts_with("127.") || address == "::1"; }

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  ::getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::optional<std::string> source_towards(const std::string& peer, int family) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(peer.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> candidates(found, ::freeaddrinfo);
  std::string address;
  for (const addrinfo* row = found; row && address.empty(); row = row->ai_next) address = source_of_route(*row);
  return address;
}

}  // namespace paceline
