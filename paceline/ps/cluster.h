// The processes of a parameter server, and which of them this one is, as `paceline run --servers` sets it in the environment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/world.h"

namespace paceline::ps {

struct Cluster {
  enum class Role { none, server, worker };
  Role role = Role::none;
  int index = -1;                                  // of a server, or the number that a worker asks for; −1: any free one
  int restarts = 0;                                // how many times a launcher has restarted this process
  int max_restarts = 0;                            // how many times it may; 0: processes are not restarted
  int workers = 0;                                 // how many were started; 0: unknown
  std::string job;                                 // identifies the run: the same for all its processes and all their restarts
  std::string key;                                 // a secret that all of them share; stays out of logs and files that others can read
  std::string runs;                                // folder of the runs, where restarted servers find their snapshots
  std::vector<std::string> servers;                // addresses, in the order of their ranges
  std::shared_ptr<comm::Communicator> ranks = {};  // ps.transport=mpi: all processes, servers first

  /// Server 0 runs the Trainer: it assigns minibatches, evaluates and writes checkpoints.
  bool leads() const { return role == Role::none || (role == Role::server && index == 0); }
};

/// From PACELINE_ROLE, PACELINE_SERVERS, PACELINE_SERVER or PACELINE_WORKER, PACELINE_WORKERS, PACELINE_RESTARTS,
/// PACELINE_MAX_RESTARTS and PACELINE_JOB. ConfigError if they contradict each other.
Cluster discover(const comm::EnvironmentVariables& environment = comm::process_environment());
/// Compares two processes' "key=value" lines: "data.batch is 64 here and 32 there, …"; empty if they are equal.
std::string difference(const std::string& here, const std::string& there);
/// A worker that joins a run: "host:port,host:port", all its servers. The key is in `key_file`, or else in PACELINE_JOB; ConfigError if it
/// is in neither.
Cluster joining(const std::string& addresses, const std::string& key_file = {});
/// The ranks that mpirun started: the first `servers` are servers, the others workers. ConfigError if there are too few.
Cluster among(std::shared_ptr<comm::Communicator> ranks, std::int64_t servers);

}  // namespace paceline::ps
