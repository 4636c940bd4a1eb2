// State that every worker has for itself (residuals, replicas, statistics): a row of one tensor for each in a checkpoint, dealt out again
// on a resume, to the same number of workers or to another.
#pragma once

#include "paceline/comm/communicator.h"
#include "paceline/nn/model.h"
#include "paceline/step/state.h"

namespace paceline::data_parallel {

/// A worker's `mine` [n] as its row of a tensor [workers, n] of a checkpoint, in the order of ranks.
step::NamedTensor own_row(const comm::Communicator& comm, const std::string& name, const at::Tensor& mine);

/// Fills `mine` from such a tensor: its own row, or, where there were other workers then, the mean of all, which keeps what they meant
/// together. ConfigError if it is missing, or its length differs.
void take_row(const comm::Communicator& comm, std::span<const step::NamedTensor> state, const std::string& name, at::Tensor& mine);

/// The sum of all rows, [n], a stretch of columns at a time. ConfigError as above.
at::Tensor sum_of_rows(std::span<const step::NamedTensor> state, const std::string& name, const at::Tensor& like);

/// `mine` [n] becomes the mean over the workers that a checkpoint's rows would give another number of them. Collective.
void average_rows(comm::Communicator& comm, at::Tensor& mine);

/// All workers begin with worker 0's parameters and statistics; private ones stay as they are. Collective.
void equalise(comm::Communicator& comm, nn::Model& module);

}  // namespace paceline::data_parallel
