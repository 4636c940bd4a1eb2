// The engines' factories, for the registry alone, and what they have in common.
#pragma once

#include "paceline/comm/engine.h"
#include "paceline/comm/shared/process_memory.h"

namespace paceline::comm {

std::unique_ptr<Endpoint> connect_shm(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_mpi(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_gloo(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

/// A shaped link is one between hosts: where nobody said how many ranks a host has, each is one.
CommConfig with_hosts(CommConfig config);

/// An exchange by way of the store; `name` keeps it apart from others.
shared::Exchange exchange_through(const std::shared_ptr<Store>& store, const World& world, const std::string& name);

}  // namespace paceline::comm
