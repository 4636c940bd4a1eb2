// Which processes make a parameter server, and which of them this is: what `paceline run --servers` tells every one of them.
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
  int index = -1;                    // of a server, or the number that a worker asks for; −1: any that is free
  int restarts = 0;                  // how often a launcher had to start this process again
  int max_restarts = 0;              // how often it would; 0: nobody is started again
  int workers = 0;                   // that were started; 0: not known
  std::string job;                   // tells runs apart: the same for all processes of one, however often they start again
  std::string key;                   // that all of them know and nobody else does; stays out of logs and files others can read
  std::string runs;                  // folder of the runs, where servers find what they kept
  std::vector<std::string> servers;  // addresses, in the order of their ranges
  std::shared_ptr<comm::Communicator> ranks = {};  // ps.transport=mpi: all of them, servers first

  /// Server 0 trains: it deals out the work, evaluates, writes.
  bool leads() const { return role == Role::none || (role == Role::server && index == 0); }
};

/// From PACELINE_ROLE, PACELINE_SERVERS, PACELINE_SERVER or PACELINE_WORKER, PACELINE_WORKERS, PACELINE_RESTARTS,
/// PACELINE_MAX_RESTARTS and PACELINE_JOB. ConfigError where they contradict each other.
Cluster discover(const comm::Environment& environment = comm::process_environment());
/// What two processes' "key=value" lines do not agree on: "data.batch is 64 here and 32 there, …"; empty: nothing.
std::string difference(const std::string& here, const std::string& there);
/// A worker that joins a run: "host:port,host:port", all its servers. The key is in `key_file`, or else in PACELINE_JOB; ConfigError where
/// it is in neither.
Cluster joining(const std::string& addresses, const std::string& key_file = {});
/// The ranks that mpirun started: the first `servers` serve, the others work. ConfigError where they are too few.
Cluster among(std::shared_ptr<comm::Communicator> ranks, std::int64_t servers);

}  // namespace paceline::ps
