#include "paceline/comm/engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/launcher_line.h"
#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/engines/all.h"
#include "paceline/comm/rank_communicator.h"

#ifndef PACELINE_WITH_MPI
#define PACELINE_WITH_MPI 0
#endif
#ifndef PACELINE_WITH_GLOO
#define PACELINE_WITH_GLOO 0
#endif
#ifndef PACELINE_WITH_NCCL
#define PACELINE_WITH_NCCL 0
#endif

namespace paceline::comm {
namespace {

template <auto end>
std::unique_ptr<Communicator> over(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store) {
  return communicator_over(end(with_hosts(config), world, store), config, store);
}

constexpr Entry<Engine> kEngines[] = {
    {"local", "ranks are threads of one process", {.connect = nullptr, .gpu = Engine::Gpu::addresses}},
    {"shm",
     "ranks are processes of one host; collectives run directly on memory that all of them map",
     {.connect = over<connect_shm>, .gpu = Engine::Gpu::windows}},
#if PACELINE_WITH_MPI
    {"mpi",
     "ranks started by mpirun or srun; shared memory within a host, MPI across hosts",
     {.connect = over<connect_mpi>, .meet = meet_mpi, .launcher = mpirun, .spans_hosts = true}},
#endif
#if PACELINE_WITH_GLOO
    {"gloo",
     "processes of many hosts without MPI; shared memory within a host, Gloo over TCP across hosts",
     {.connect = over<connect_gloo>, .spans_hosts = true, .shares_memory = false}},
#endif
#if PACELINE_WITH_NCCL
    {"nccl", "memory of GPUs, one rank a GPU", {.connect = connect_nccl, .spans_hosts = true, .gpu = Engine::Gpu::own}},
#endif
};

/// Engines that a build may lack, and what to do about it.
constexpr struct {
  std::string_view key, library, mend;
} kOptional[] = {
    {"mpi", "MPI", "install libopenmpi-dev and build again, or use comm.engine=shm on one host, gloo on several"},
    {"gloo", "Gloo", "install libgloo-dev and build again, or use comm.engine=shm on one host, mpi on several"},
    {"nccl", "NCCL", "use comm.engine=local, or build with -DPACELINE_CUDA=ON where NCCL is installed"},
};

bool has_engine(std::string_view key) {
  return std::any_of(std::begin(kEngines), std::end(kEngines), [&](const auto& row) { return row.key == key; });
}

/// The fastest engine that can carry this world.
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

std::span<const Entry<Engine>> engines() { return kEngines; }

const Engine& engine_of(std::string_view key) {
  for (const auto& row : kOptional)
    if (row.key == key && !has_engine(key))
      throw ConfigError(fmt::format("comm.engine={}: this build has no {}; {}", key, row.library, row.mend));
  return find(engines(), "engine", key).make;
}

std::string paceline_run(int ranks) { return fmt::format("paceline run -np {} --", ranks); }

CommConfig with_hosts(CommConfig config) {
  if (config.shapes() && config.per_host == 0) config.per_host = 1;
  return config;
}

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

std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Endpoint> endpoint, const CommConfig& config,
                                                const std::shared_ptr<Store>& store) {
  if (config.shapes())
    endpoint = shape(std::move(endpoint), {.bytes_per_s = config.link_gbit_per_s * 1e9 / 8,
                                           .latency_s = config.link_latency_us * 1e-6,
                                           .jitter_s = config.link_jitter_us * 1e-6,
                                           .seed = 1});
  Judge judge(store, endpoint->rank(), endpoint->size());
  return std::make_unique<RankCommunicator>(std::move(endpoint), config, std::move(judge));
}

std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> communicator, const CommConfig& config,
                                        const std::shared_ptr<Store>& store) {
  if (config.check) communicator = check(std::move(communicator), config.algorithm);
  if (config.record && communicator->size() > 1) communicator = record(std::move(communicator), store);
  if (!config.fail_at.empty()) communicator = fault(std::move(communicator), static_cast<int>(config.fail_at[0]), config.fail_at[1]);
  return communicator;
}

Nanoseconds CommConfig::connect_deadline(const World& world) const {
  using namespace std::chrono_literals;
  constexpr Nanoseconds kLeast = 30s, kEach = 10s;  // a rank loads its libraries in about a second of a core
  return std::max({deadline(), kLeast, kEach * world.local_size / std::max(world.cores, 1)});
}

void CommConfig::check_for(int ranks) const {
  if (engine != "auto") engine_of(engine);
  if (fail_at.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("comm.fail_at=[{}] {}; it is [rank, n], with n from 1", fmt::join(fail_at, ", "), why));
  };
  if (fail_at.size() != 2) refuse(fmt::format("has {} numbers", fail_at.size()));
  if (fail_at[0] < 0 || fail_at[0] >= ranks) refuse(fmt::format("names rank {}, but the ranks are 0 to {}", fail_at[0], ranks - 1));
  if (fail_at[1] < 1) refuse(fmt::format("names operation {}", fail_at[1]));
}

void CommConfig::describe(Section& section) {
  std::vector<std::string_view> engine_keys{"auto"}, algorithm_keys{"auto"};
  for (const auto& row : engines()) engine_keys.push_back(row.key);
  for (const auto& row : kOptional)
    if (!has_engine(row.key)) engine_keys.push_back(row.key);  // a recipe may still name it: check_for() then says what is missing
  for (const auto& row : schedule::algorithms()) algorithm_keys.push_back(row.key);
  section.field("engine", engine, "how ranks are carried; auto: the fastest that can").one_of(engine_keys);
  section
      .field(
          "algorithm", algorithm,
          "of the collectives that it offers, ring of the others; auto: the cheapest for each message, by built-in costs, or by measured "
          "ones with train.repeatable=false")
      .one_of(algorithm_keys);
  section.field("deadline_s", deadline_s, "seconds after which a missing rank is an error").above(0);
  section
      .field("silence_s", silence_s,
             "seconds without a heartbeat after which a rank is given up, however long it may compute; 0: never (for debuggers)")
      .at_least(0);
  section.field("record", record, "keep the last operations, and say at a deadline what the missing rank did last");
  section.field("check", check, "compare what all ranks call before each collective (slower)");
  section.field("fail_at", fail_at, "[rank, n]: this rank's n-th operation fails, to try what happens then");
  section
      .field("per_host", per_host,
             "0: hosts as they are; otherwise so many neighbours count as a host, to try a cluster's shape on one machine")
      .at_least(0);
  section.field("link_gbit_per_s", link_gbit_per_s, "what a host can send; 0: as it is. With per_host=0 every rank counts as a host")
      .at_least(0);
  section.field("link_latency_us", link_latency_us, "how long a message between hosts takes to arrive").at_least(0);
  section.field("link_jitter_us", link_jitter_us, "up to how much longer, by chance").at_least(0);
}

shared::Exchange exchange_through(const std::shared_ptr<Store>& store, const World& world, const std::string& name, Nanoseconds deadline) {
  return [store, world, name, deadline, round = 0](const std::string& own) mutable {
    const std::string prefix = fmt::format("exchange/{}/{}/", name, round++);
    store->set(prefix + std::to_string(world.rank), own);
    std::vector<std::string> all;
    for (int peer = 0; peer < world.size; ++peer) {
      const auto value = store->wait(prefix + std::to_string(peer), deadline);
      if (!value)
        throw PeerError(peer, "connect", 0,
                        fmt::format("rank {} did not reach the start within {:.0f} s; if it needs longer, raise comm.deadline_s", peer,
                                    seconds(deadline)));
      all.push_back(*value);
    }
    return all;
  };
}

}  // namespace paceline::comm
