// Parameter servers and workers as ranks of a communicator: under mpirun, MPI between hosts and shared memory within one (comm/engine.h).
//
// The messages are those of wire.h, heads and payloads apart, so that parameters and gradients go from where they lie to where they belong.
// A worker asks and waits, with a deadline. A server has one thread for everybody: it looks round the ranks for what has come, and never
// waits for one of them; a pull that has to wait for other workers, or a question for work, stays at its desk until its turn comes.
//
// Ranks neither come nor go: one that dies ends the run, by the engine that misses it or by mpirun.
#pragma once

#include "paceline/ps/transports/service.h"

namespace paceline::ps {

std::unique_ptr<Service> serve_ranks(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
                                     const ServiceOptions& options);
/// Joins the servers among the ranks. A server may look (kObserver) at the others; its own range is not filled.
std::unique_ptr<RemoteClient> connect_ranks(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options);

}  // namespace paceline::ps
