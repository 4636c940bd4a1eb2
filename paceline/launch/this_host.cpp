#include "paceline/launch/this_host.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "paceline/base/descriptor.h"
#include "paceline/base/error.h"
#include "paceline/base/host.h"

namespace paceline::launch {
namespace {

std::string first_interface() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, ::freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) && !(one->ifa_flags & IFF_LOOPBACK))
      return number_of(one->ifa_addr);
  return {};
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
  std::string here = source_towards(host, AF_INET).value_or("");
  if (here.empty() || names_loopback(here)) here = first_interface();
  if (here.empty())
    throw ConfigError(fmt::format("this host has no network address that {} could reach; give one with --master-addr", host));
  return here;
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
