#include "paceline/comm/engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/comm/engines/all.h"
#include "paceline/comm/engines/common.h"

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
    {"nccl",
     "ranks have one GPU each; NCCL within and across hosts",
     {.connect = connect_nccl, .spans_hosts = true, .gpu = Engine::Gpu::own}},
#endif
};

/// Engines that a build may lack, and what to do about it.
constexpr struct {
  std::string_view key, library, remedy;
} kOptional[] = {
    {"mpi", "MPI", "install libopenmpi-dev and build again, or use comm.engine=shm on one host, gloo on several"},
    {"gloo", "Gloo", "install libgloo-dev and build again, or use comm.engine=shm on one host, mpi on several"},
    {"nccl", "NCCL", "use comm.engine=local, or build with -DPACELINE_CUDA=ON where NCCL is installed"},
};

}  // namespace

std::span<const Entry<Engine>> engines() { return kEngines; }

bool has_engine(std::string_view key) {
  return std::any_of(std::begin(kEngines), std::end(kEngines), [&](const auto& row) { return row.key == key; });
}

std::vector<std::string_view> engine_keys() {
  std::vector<std::string_view> keys;
  for (const auto& row : kEngines) keys.push_back(row.key);
  for (const auto& row : kOptional)
    if (!has_engine(row.key)) keys.push_back(row.key);
  return keys;
}

const Engine& engine_of(std::string_view key) {
  for (const auto& row : kOptional)
    if (row.key == key && !has_engine(key))
      throw ConfigError(fmt::format("comm.engine={}: this build has no {}; {}", key, row.library, row.remedy));
  return find(engines(), "engine", key).make;
}

std::string paceline_run(int ranks) { return fmt::format("paceline run -np {} --", ranks); }

}  // namespace paceline::comm
