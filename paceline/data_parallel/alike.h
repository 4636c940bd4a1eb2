// A user's module on all workers: the same parameters under the same names, with worker 0's values to begin with.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "paceline/comm/communicator.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// Returns the module. ConfigError if it is a GraphModule or has one, or differs between the workers. `who` asks. Collective.
torch::nn::Module& check_alike(torch::nn::Module& module, comm::Communicator& comm, const std::string& who);

/// Whether any two workers are threads of one process. Collective.
bool share_process(comm::Communicator& comm);

/// `tensor` becomes worker 0's, whatever its type. Collective.
void broadcast_bytes(const torch::Tensor& tensor, comm::Communicator& comm);

/// The module becomes worker 0's: the parameters in the arena, frozen ones, buffers. Collective.
void broadcast_module(torch::nn::Module& module, const tensor::Arena& arena, comm::Communicator& comm);

}  // namespace paceline::data_parallel
