// The variables of launchers: lines NAME=value.
#include <map>

#include "paceline/base/text.h"
#include "paceline/comm/world.h"
#include "paceline/ps/cluster.h"
#include "tests/fuzz/fuzz.h"

using namespace paceline;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : split(fuzz::text_of(data, size), '\n'))
    if (const auto equals = line.find('='); equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  const comm::EnvironmentVariables environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  fuzz::parse([&] {
    const comm::World world = comm::discover(environment);
    fuzz::require(world.rank >= 0 && world.rank < world.size, "a rank is below the world's size");
    fuzz::require(world.local_rank >= 0 && world.local_rank < world.local_size, "a local rank is below the local size");
    fuzz::require(world.local_size <= world.size, "a host has no more ranks than the world");
    fuzz::require(world.port >= 0 && world.port + world.more_ports <= 65535, "a port is one");
    fuzz::require(world.cores >= 1, "there is a core");
  });
  return fuzz::parse([&] {
    const ps::Cluster cluster = ps::discover(environment);
    fuzz::require(cluster.role != ps::Cluster::Role::server || cluster.index < std::ssize(cluster.servers), "a server is one of them");
  });
}
