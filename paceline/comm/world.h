// This process's rank and the number of ranks. Taken, in this order, from the command line, torchrun's variables (which `paceline run` sets
// too), Open MPI's and PMI's, SLURM's; otherwise one process. An incomplete set of variables is an error that names the missing ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "paceline/base/affinity.h"
#include "paceline/comm/store.h"

namespace paceline::comm {

struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this host,
  int cores = usable_cores();          // which have this many cores between them
  std::string address;                 // where rank 0 can be reached; empty: unknown (MPI finds its ranks by itself)
  int port = 0;
  int more_ports = 0;            // if `port` is in use, rank 0 may listen at one of this many ports after it
  std::string job;               // unique among the jobs on these hosts: names the store, and is the key to it; empty: none was given
  bool secret = false;           // the job's name is secret (PACELINE_JOB); the names that other launchers give are not
  std::string run;               // the job's name in files, the same after every restart; empty: not started by `paceline run`
  int restarts = 0;              // how many times `paceline run` restarted this process
  std::string source = "alone";  // where this came from: "torchrun", "paceline run", "mpi", "slurm", "alone"

  bool one_host() const { return local_size == size; }
  /// The world as thread `index` of this process sees it, where every process has `threads` ranks, one per thread.
  World of_thread(int index, int threads) const;
  /// Which part, of how many, of its process's cores thread `index` of `threads` uses. If a launcher has bound its ranks, the processes do
  /// not share their cores.
  std::pair<int, int> part_of_cores(int index = 0, int threads = 1) const;
};

/// The cores that `ranks` of a host have between them if each may use `own` of the launcher's (0: unknown): mpirun and srun bind each rank
/// to some of their own, which may be that rank's alone; other launchers let every rank use all of them.
int cores_between(int ranks, int own, int launchers);

/// Reads one variable; nothing if it is not set. Tests pass their own.
using EnvironmentVariables = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentVariables process_environment();

/// Throws ConfigError for RANK ≥ WORLD_SIZE, an incomplete set of variables, or a value that is not a number.
World discover(const EnvironmentVariables& environment = process_environment());

/// A port that all ranks of a job choose alike, and that other jobs most likely do not choose.
int port_for(const std::string& job);

/// The same for processes that can share memory, different for all others: the boot, the process namespace and the network namespace, so
/// that two network namespaces of one machine count as two hosts.
std::string host_id();

/// The store of a world of processes. Rank 0 serves it, the others connect; it is ready once all ranks have connected. They check that they
/// agree about the job: two ranks with one number, different world sizes, a port in use and several hosts that resolve to loopback are a
/// ConfigError within two seconds on the ranks that see them; a rank that has not connected by the deadline is a PeerError on all others.
///
/// On every connection both sides first prove that they know the job's key (handshake.h). If all ranks are on one host the store is an
/// abstract unix socket: it needs no port, and the system vouches for the user. Between hosts it is TCP at address:port, and the job's name
/// must be secret. Call it once for each rank; several ranks may be threads of one process.
std::shared_ptr<Store> connect_store(const World& world, Nanoseconds deadline);

}  // namespace paceline::comm
