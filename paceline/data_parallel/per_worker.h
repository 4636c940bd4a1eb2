// State that every worker has for itself (residuals, replicas, statistics): gathered for a checkpoint, and dealt out again on a resume, to
// the same number of workers or to another.
#pragma once

#include "paceline/comm/communicator.h"
#include "paceline/nn/model.h"

namespace paceline::data_parallel {

/// [workers, n]: everybody's `mine` [n], in the order of ranks. Collective.
at::Tensor gather_rows(comm::Communicator& comm, const at::Tensor& mine);

/// Fills `mine` from gathered rows: its own row, or, where there were other workers then, the mean of all, which keeps what they meant
/// together. ConfigError where the length differs.
void take_row(comm::Communicator& comm, const at::Tensor& rows, at::Tensor& mine, const std::string& name);

/// All workers begin with worker 0's parameters and statistics. Collective.
void equalise(comm::Communicator& comm, nn::Model& module);

}  // namespace paceline::data_parallel
