#include "paceline/data_parallel/per_worker.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::data_parallel {

at::Tensor gather_rows(comm::Communicator& comm, const at::Tensor& mine) {
  at::Tensor rows = at::empty({comm.size(), mine.numel()}, mine.options());
  rows[comm.rank()].copy_(mine);
  if (comm.size() > 1 && rows.numel() > 0) comm.run(comm::all_gather(rows));
  return rows;
}

void take_row(comm::Communicator& comm, const at::Tensor& rows, at::Tensor& mine, const std::string& name) {
  if (rows.dim() != 2 || rows.size(1) != mine.numel())
    throw ConfigError(fmt::format("'{}' of the checkpoint is for {} values a worker, and this model has {}; resume with the same recipe",
                                  name, rows.dim() == 2 ? rows.size(1) : rows.numel(), mine.numel()));
  mine.copy_(rows.size(0) == comm.size() ? rows[comm.rank()] : rows.mean(0));
}

void equalise(comm::Communicator& comm, nn::Model& module) {
  if (comm.size() == 1) return;
  for (const at::Tensor& flat : {module.arena().parameters(), module.statistics().parameters()})
    if (flat.numel() > 0) comm.run(comm::broadcast(flat));
  module.refresh();
}

}  // namespace paceline::data_parallel
