// Where the ranks of a job meet: chooses the endpoints of its store.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "paceline/base/entropy.h"
#include "paceline/base/hmac.h"
#include "paceline/base/host.h"
#include "paceline/comm/tcp_store.h"
#include "paceline/comm/world.h"

namespace paceline::comm {
namespace {

wire::Hello hello_of(const World& world) {
  wire::Hello hello;
  hello.rank = world.rank;
  hello.size = world.size;
  hello.pid = ::getpid();
  std::memcpy(&hello.instance, random_bytes(sizeof(hello.instance)).data(), sizeof(hello.instance));
  hello.host_id = host_id();
  hello.host_name = host_name();
  hello.local_size = world.local_size;
  return hello;
}

constexpr std::size_t kShortestSecret = 16;  // characters: shorter ones can be found by brute force

/// A name that all processes of the job on this host find, and that does not reveal the key: names are public in /proc/net/unix. Variables
/// that were set by hand, and torchrun's, may differ between jobs in their port alone.
SocketAddress local_address(const World& world) {
  return abstract_address(fmt::format("paceline-{}-{}", ::geteuid(), public_name(world.job, fmt::format("store {}", world.port))));
}

void check_secret(const World& world) {
  if (world.secret && world.job.size() >= kShortestSecret) return;
  throw ConfigError(
      fmt::format("{} ranks on several hosts connect over TCP and need the job's key, but {}; give all ranks the same secret of at least "
                  "{} characters: export PACELINE_JOB=$(openssl rand -hex 16)",
                  world.size, world.secret ? "PACELINE_JOB is too short" : "PACELINE_JOB is not set", kShortestSecret));
}

std::vector<SocketAddress> tcp_candidates(const World& world) {
  if (world.address.empty())
    throw ConfigError(
        fmt::format("{} ranks on several hosts, but the address of rank 0 is unknown; set MASTER_ADDR and MASTER_PORT for all ranks "
                    "(mpirun -x MASTER_ADDR=… -x MASTER_PORT=…), or use the mpi engine",
                    world.size));
  check_secret(world);
  std::vector<SocketAddress> candidates;
  for (int port = world.port; port <= world.port + world.more_ports; ++port) {
    const SocketAddress endpoint = tcp_address(world.address, port);
    if (endpoint.is_loopback())
      throw ConfigError(fmt::format(
          "MASTER_ADDR={} is {} on host {}, which only this host can reach, but {} of the {} ranks are on others; set it to an address of "
          "rank 0's host that all can reach",
          world.address, endpoint.name.substr(0, endpoint.name.rfind(':')), host_name(), world.size - world.local_size, world.size));
    candidates.push_back(endpoint);
  }
  return candidates;
}

std::vector<SocketAddress> candidates(const World& world) {
  return world.one_host() ? std::vector{local_address(world)} : tcp_candidates(world);
}

/// Where rank 0 listens if it believes that all ranks are on its host while this rank does not, or the other way round.
std::vector<SocketAddress> candidates_elsewhere(World world) {
  world.local_size = world.one_host() ? 1 : world.size;
  try {
    if (obstacle_at(tcp_address(world.address, world.port)) == std::errc::address_not_available) return {};
    return candidates(world);
  } catch (const ConfigError&) {  // nowhere
    return {};
  }
}

}  // namespace

std::shared_ptr<Store> connect_store(const World& world, Nanoseconds deadline) {
  if (world.size == 1) return memory_store();
  const StoreJob job{hello_of(world), world.job, candidates(world), [world] { return candidates_elsewhere(world); }};
  return world.rank == 0 ? serve_store(job, deadline) : reach_store(job, deadline);
}

}  // namespace paceline::comm
