// Parameter servers and workers as ranks of a communicator: under mpirun, MPI between hosts and shared memory within one (comm/engine.h).
//
// The messages are those of wire.h, with heads and payloads apart, so that parameters and gradients go from where they lie to where they
// belong. A worker sends a request and waits, with a deadline. A server has one thread for all: it polls the ranks for what has arrived,
// and never waits for one of them; a pull that must wait for other workers, or a request for work, stays at its desk until its turn.
//
// Ranks neither join nor leave during a run: one that dies ends it, through the engine or through mpirun.
#pragma once

#include "paceline/ps/transports/service.h"

namespace paceline::ps {

std::unique_ptr<Service> serve_ranks(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
                                     const ServiceOptions& options);
/// Joins the servers among the ranks. A server may observe the others (kObserver); its own range is not filled.
std::unique_ptr<RemoteClient> connect_ranks(const Cluster& cluster, const ArenaLayout& layout, const JoinOptions& options);

}  // namespace paceline::ps
