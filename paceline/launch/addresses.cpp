#include "paceline/launch/addresses.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "paceline/base/error.h"

namespace paceline::launch {
namespace {

/// An address at which all ranks can reach this rank's host.
std::string reachable_at(const Placement& placement, const Place& place) {
  if (placement.one_host()) return "127.0.0.1";
  if (!place.here) return place.host.substr(place.host.find('@') + 1);  // npos + 1 is 0
  const auto other = std::ranges::find_if(placement.places, [](const Place& one) { return !one.here; });
  if (other != placement.places.end()) return address_towards(other->host);
  ensure(placement.places.size() == static_cast<std::size_t>(placement.size), "a job of several launchers has an address");
  return "127.0.0.1";
}

}  // namespace

JobAddresses::JobAddresses(Job& job) {
  const Place& first = job.placement.places.front();
  if (job.address.empty()) job.address = reachable_at(job.placement, first);
  if (job.port == 0) job.port = new_port(first);
  ports_.insert(job.port);
  for (int server = 0; server < job.servers; ++server) {
    const Place& place = job.placement.places[static_cast<std::size_t>(server)];
    job.server_addresses.push_back(fmt::format("{}:{}", place.node == first.node ? job.address : reachable_at(job.placement, place),
                                               server == 0 ? job.port : new_port(place)));
  }
}

int JobAddresses::new_port(const Place& place) {
  std::random_device random;
  const auto propose = [&] {
    if (place.here) return held_.emplace_back().number();
    return std::uniform_int_distribution(20000, 29999)(random);  // on another host we cannot ask for a free one
  };
  int port = propose();
  while (!ports_.insert(port).second) port = propose();
  return port;
}

}  // namespace paceline::launch
