// The engines' factories, for the registry alone.
#pragma once

#include "paceline/comm/engine.h"

namespace paceline::comm {

// Endpoints of CPU engines; communicator_over() turns them into communicators.
std::unique_ptr<Endpoint> connect_shm(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_mpi(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);
std::unique_ptr<Endpoint> connect_gloo(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

std::shared_ptr<Store> meet_mpi(const World& world, Nanoseconds deadline);
std::string mpirun(int ranks);

std::unique_ptr<Communicator> connect_nccl(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store);

}  // namespace paceline::comm
