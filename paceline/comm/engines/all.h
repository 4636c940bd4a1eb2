// The engines' factories, for the registry alone, and what they have in common.
#pragma once

#include "paceline/comm/engine.h"
#include "paceline/comm/shared/process_memory.h"

namespace paceline::comm {

// Endpoints of CPU engines; communicator_over() turns them into communicators.
std::unique_ptr<Endpoint> connect_shm(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_mpi(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_gloo(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

std::shared_ptr<Store> meet_mpi(const World& world, Nanoseconds deadline);
std::string mpirun(int ranks);

std::unique_ptr<Communicator> connect_nccl(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

/// A communicator over an endpoint, with shaped links if the configuration asks for them.
std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Endpoint> endpoint, const CommConfig& config,
                                                const std::shared_ptr<Store>& store);
/// Adds the decorators that the configuration asks for. `store`: where ranks report what they do; may be null.
std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> communicator, const CommConfig& config,
                                        const std::shared_ptr<Store>& store);

/// Only links between hosts are shaped. If the number of ranks per host is not configured, each rank counts as a host.
CommConfig with_hosts(CommConfig config);

/// An exchange through the store; `name` distinguishes it from others.
shared::Exchange exchange_through(const std::shared_ptr<Store>& store, const World& world, const std::string& name, Nanoseconds deadline);

}  // namespace paceline::comm
