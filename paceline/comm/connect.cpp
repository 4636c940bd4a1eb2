#include "paceline/comm/connect.h"

#include <fmt/format.h>

#include "paceline/base/launcher_line.h"
#include "paceline/comm/engine.h"
#include "paceline/comm/engines/common.h"

namespace paceline::comm {
namespace {

/// The fastest engine that can connect this world.
std::string engine_for(const World& world) {
  if (world.one_host()) return "shm";
  if (world.source == "mpi" && has_engine("mpi")) return "mpi";
  if (has_engine("gloo")) return "gloo";
  if (has_engine("mpi")) return "mpi";
  throw ConfigError(fmt::format(
      "{} ranks on several hosts, but this build has neither Gloo nor MPI; install libgloo-dev or libopenmpi-dev and build again",
      world.size));
}

}  // namespace

std::unique_ptr<Communicator> connect(const CommConfig& config, const World& world) {
  config.check_for(world.size);
  const bool alone = world.size == 1;
  if (alone && (config.engine == "auto" || engine_of(config.engine).gpu != Engine::Gpu::own))
    return std::move(local_group(1, config).front());
  const std::string key = config.engine == "auto" ? engine_for(world) : config.engine;
  const Engine& engine = engine_of(key);
  if (!engine.connect)
    throw ConfigError(fmt::format("comm.engine={} carries threads of one process, but {} started {} processes; use comm.engine={}", key,
                                  world.source, world.size, engine_for(world)));
  if (!engine.spans_hosts && !world.one_host())
    throw ConfigError(fmt::format("comm.engine={} needs all ranks on one host, but only {} of {} are on this one; use comm.engine={}", key,
                                  world.local_size, world.size, engine_for(world)));
  try {
    const std::shared_ptr<Store> store = alone ? nullptr : engine.meet(world, config.connect_deadline(world));
    if (store) store->start_heartbeat(config.silence());
    return decorated(engine.connect(config, world, store), config, store);
  } catch (const PeerError& error) {
    tell_launcher(error, world.size);
    throw;
  }
}

}  // namespace paceline::comm
