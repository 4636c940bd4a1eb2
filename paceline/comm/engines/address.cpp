#include "paceline/comm/engines/address.h"

#include <ifaddrs.h>

#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/host.h"

namespace paceline::comm {
namespace {

std::string address_of_interface(const std::string& variable, const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw ConfigError(fmt::format("the network interfaces of host {} cannot be listed", host_name()));
  std::set<std::string> names;
  std::string v4, v6;
  for (const ifaddrs* row = list; row; row = row->ifa_next) {
    names.insert(row->ifa_name);
    if (name != row->ifa_name || !row->ifa_addr) continue;
    if (row->ifa_addr->sa_family == AF_INET && v4.empty()) v4 = number_of(row->ifa_addr);
    if (row->ifa_addr->sa_family == AF_INET6 && v6.empty()) v6 = number_of(row->ifa_addr);
  }
  freeifaddrs(list);
  if (!names.contains(name))
    throw ConfigError(fmt::format("{}={}: host {} has no such interface; it has {}", variable, name, host_name(), fmt::join(names, ", ")));
  if (v4.empty() && v6.empty())
    throw ConfigError(fmt::format("{}={}: this interface of host {} has no address", variable, name, host_name()));
  return v4.empty() ? v6 : v4;
}

std::string address_towards(const std::string& peer) {
  const std::optional<std::string> address = source_towards(peer);
  if (!address) throw ConfigError(fmt::format("host {} cannot resolve '{}', the address of rank 0; set MASTER_ADDR", host_name(), peer));
  if (address->empty())
    throw ConfigError(fmt::format("host {} has no route to '{}', the address of rank 0; set MASTER_ADDR", host_name(), peer));
  return *address;
}

}  // namespace

std::string own_address(const std::string& peer, bool several_hosts) {
  for (const char* variable : {"PACELINE_INTERFACE", "GLOO_SOCKET_IFNAME"})
    if (const char* name = std::getenv(variable); name && *name) return address_of_interface(variable, name);
  return several_hosts ? address_towards(peer) : "127.0.0.1";
}

}  // namespace paceline::comm
