// State that belongs to one worker (residuals, replicas, statistics). A checkpoint has one row per worker in a single tensor, which a
// resumed run distributes to the same or to another number of workers.
#pragma once

#include "paceline/comm/communicator.h"
#include "paceline/nn/model.h"
#include "paceline/step/state.h"

namespace paceline::data_parallel {

/// Saves a worker's `mine` [n] as its row of a checkpoint's tensor [workers, n], in rank order.
step::NamedTensor own_row(const comm::Communicator& comm, const std::string& name, const at::Tensor& mine);

/// Fills `mine` from such a tensor: with its own row or, if the number of workers has changed, with the mean of all rows, which preserves
/// their total effect. ConfigError if the tensor is missing or has another length.
void take_row(const comm::Communicator& comm, std::span<const step::NamedTensor> state, const std::string& name, at::Tensor& mine);

/// Replaces `mine` [n] by the mean over the workers that a checkpoint's rows would give another number of them. Collective.
void average_rows(comm::Communicator& comm, at::Tensor& mine);

/// Copies worker 0's parameters and statistics to all workers; private ones are left as they are. Collective.
void equalise(comm::Communicator& comm, nn::Model& module);

}  // namespace paceline::data_parallel
