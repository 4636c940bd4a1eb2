#include "paceline/launch/variables.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "paceline/launch/role.h"

namespace paceline::launch {
namespace {

constexpr std::array kOurs = {"PACELINE_JOB",    "PACELINE_RESTARTS", "PACELINE_ROLE",    "PACELINE_SERVER",
                              "PACELINE_WORKER", "PACELINE_SERVERS",  "PACELINE_WORKERS", "PACELINE_MAX_RESTARTS"};

/// Variables from which comm::discover() would infer a rank.
constexpr std::array kOfGroups = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
};

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

bool contains(const auto& names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

std::vector<std::string> place_in_group(const Job& job, const Place& place) {
  return {fmt::format("RANK={}", place.rank),
          fmt::format("WORLD_SIZE={}", job.placement.size),
          fmt::format("LOCAL_RANK={}", place.local_rank),
          fmt::format("LOCAL_WORLD_SIZE={}", place.local_size),
          fmt::format("GROUP_RANK={}", place.node),
          fmt::format("NODE_RANK={}", place.node),
          fmt::format("MASTER_ADDR={}", job.address),
          fmt::format("MASTER_PORT={}", job.port)};
}

std::vector<std::string> place_among_servers(const Job& job, const Place& place) {
  const Role role = Role::of(place.rank, job.servers);
  return {fmt::format("PACELINE_ROLE={}", role.word()),
          fmt::format("{}={}", role.kind == Role::Kind::server ? "PACELINE_SERVER" : "PACELINE_WORKER", role.index),
          fmt::format("PACELINE_SERVERS={}", fmt::join(job.server_addresses, ",")),
          fmt::format("PACELINE_WORKERS={}", job.placement.size - job.servers)};
}

}  // namespace

bool has_variable(const std::vector<std::string>& variables, std::string_view name) {
  return std::ranges::find(variables, name, name_of) != variables.end();
}

void set_variable(std::vector<std::string>& variables, const std::string& variable) {
  std::erase_if(variables, [&](const std::string& other) { return name_of(other) == name_of(variable); });
  variables.push_back(variable);
}

std::vector<std::string> rank_variables(const Job& job, const Place& place, int restarts) {
  // In ascending order of precedence: a shell on another host uses the last value of a name, getenv() here the first.
  std::vector<std::string> variables;
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) set_variable(variables, fmt::format("OMP_NUM_THREADS={}", threads));
  for (const std::string& exported : job.exported) set_variable(variables, exported);
  for (const std::string& own : job.servers > 0 ? place_among_servers(job, place) : place_in_group(job, place))
    set_variable(variables, own);
  set_variable(variables, fmt::format("PACELINE_RESTARTS={}", restarts));
  set_variable(variables, fmt::format("PACELINE_MAX_RESTARTS={}", job.max_restarts));
  return variables;
}

std::vector<std::string> environment_with(const std::vector<std::string>& variables, const Job& job) {
  std::vector<std::string> all = variables;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string_view name = name_of(*inherited);
    if (!has_variable(variables, name) && !contains(kOurs, name) && (job.servers == 0 || !contains(kOfGroups, name)))
      all.emplace_back(*inherited);
  }
  return all;
}

bool set_by_launcher(std::string_view variable) { return contains(kOurs, name_of(variable)); }

}  // namespace paceline::launch
