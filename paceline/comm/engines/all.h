// The engines' factories, for the registry alone, and what they have in common.
#pragma once

#include "paceline/comm/engine.h"
#include "paceline/comm/shared/process_memory.h"

namespace paceline::comm {

// Ends of CPU engines; communicator_over makes communicators of them.
std::unique_ptr<Endpoint> connect_shm(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_mpi(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_gloo(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

std::shared_ptr<Store> meet_mpi(const World& world, Nanoseconds deadline);
std::string mpirun(int ranks);

std::unique_ptr<Communicator> connect_nccl(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

/// A communicator over an endpoint, whose links are shaped if the configuration says so.
std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Endpoint> endpoint, const CommConfig& config,
                                                const std::shared_ptr<Store>& store);
/// The decorators that the configuration asks for. `store`: where ranks tell what they do; may be null.
std::unique_ptr<Communicator> decorated(std::unique_ptr<Communicator> communicator, const CommConfig& config,
                                        const std::shared_ptr<Store>& store);

/// A shaped link is one between hosts: where nobody said how many ranks a host has, each is one.
CommConfig with_hosts(CommConfig config);

/// An exchange by way of the store; `name` keeps it apart from others.
shared::Exchange exchange_through(const std::shared_ptr<Store>& store, const World& world, const std::string& name, Nanoseconds deadline);

}  // namespace paceline::comm
