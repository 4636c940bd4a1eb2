// Who am I among how many? Found in this order: what the command line says, torchrun's variables (ours too: `paceline run` sets them), Open
// MPI's and PMI's, SLURM's, else one process. Half of a set of variables is an error that names the missing half, never a guess.
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
  int local_rank = 0, local_size = 1;  // among the ranks of this host …
  int cores = usable_cores();          // … which have so many between them
  std::string address;                 // where rank 0 can be reached; empty: unknown (MPI finds its ranks by itself)
  int port = 0;
  int more_ports = 0;            // rank 0 may listen at one of so many ports after `port` where others hold it
  std::string job;               // what no other job on these hosts has: names the store, and is the key to it; empty: nobody gave one
  bool secret = false;           // nobody else knows the job's name (PACELINE_JOB); the names that other launchers give are no secrets
  std::string run;               // names the job in files, the same for all its restarts; empty: not started by `paceline run`
  int restarts = 0;              // how often `paceline run` had to start this process again
  std::string source = "alone";  // who said so: "torchrun", "paceline run", "mpi", "slurm", "alone"

  bool one_host() const { return local_size == size; }
  /// The world as thread `index` of this process sees it, where every process plays `threads` ranks, one a thread.
  World of_thread(int index, int threads) const;
  /// Which part, of how many, of its process's cores thread `index` of `threads` keeps to. Where a launcher has bound its ranks, a
  /// process's cores are not the others' too.
  std::pair<int, int> part_of_cores(int index = 0, int threads = 1) const;
};

/// Cores that `ranks` of a host have between them where each may use `own` of the launcher's (0: nobody knows): mpirun and srun bind each
/// rank to some of their own, which may be the rank's alone; other launchers leave all to all.
int cores_between(int ranks, int own, int launchers);

/// Reads one variable; nothing where it is not set. Tests give their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// Throws ConfigError: RANK ≥ WORLD_SIZE, a set of variables half there, something that is not a number.
World discover(const Environment& environment = process_environment());

/// A port that all ranks of a job choose alike, and ranks of other jobs most likely not.
int port_for(const std::string& job);

/// The same for processes that can share memory, another for all others: the boot, the process namespace and the network namespace, so that
/// two network namespaces of one machine count as two hosts.
std::string host_id();

/// The store of a world of processes. Rank 0 serves it, the others connect; it is there once all ranks have come. All check that they mean
/// the same job: two ranks with one number, different world sizes, a port in use and several hosts that resolve to loopback are a
/// ConfigError within two seconds on the ranks that see them; a rank that has not come by the deadline is a PeerError on all others.
///
/// Every connection begins with a proof on both sides that the job's key is known (handshake.h). Where all ranks are on one host the store
/// is an abstract unix socket: it needs no port, and the system vouches for the user. Between hosts it is TCP at address:port, and the
/// job's name must be a secret. Call it once for each rank; several ranks may be threads of one process.
std::shared_ptr<Store> connect_store(const World& world, Nanoseconds deadline);

}  // namespace paceline::comm
