// Makes a user's module the same on all workers: checks that it has the same parameters under the same names, and copies worker 0's values.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "paceline/comm/communicator.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// Returns the module. ConfigError if it is or contains a GraphModule, or if it differs between workers. `who` is the caller's name, for
/// messages. Collective.
torch::nn::Module& check_alike(torch::nn::Module& module, comm::Communicator& comm, const std::string& who);

/// Whether any two workers are threads of one process. Collective.
bool share_process(comm::Communicator& comm);

/// Copies worker 0's `tensor` to all workers, whatever its type. Collective.
void broadcast_bytes(const torch::Tensor& tensor, comm::Communicator& comm);

/// Copies worker 0's module to all workers: the parameters in the arena, frozen parameters, and buffers. Collective.
void broadcast_module(torch::nn::Module& module, const tensor::Arena& arena, comm::Communicator& comm);

}  // namespace paceline::data_parallel
