#include "paceline/data_parallel/per_worker.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/data_parallel/alike.h"

namespace paceline::data_parallel {

namespace {

constexpr std::int64_t kColumns = 1 << 16;  // of all rows that are processed together

/// Calls body(begin, count) for blocks of n columns.
template <class Body>
void by_columns(std::int64_t n, const Body& body) {
  for (std::int64_t begin = 0; begin < n; begin += kColumns) body(begin, std::min(kColumns, n - begin));
}

/// The number of rows.
std::int64_t checked_rows(std::span<const step::NamedTensor> state, const std::string& name, const at::Tensor& mine) {
  const auto shape = step::saved_shape(state, name);
  if (!shape) step::find_saved(state, name);  // throws the error
  if (shape->size() != 2 || shape->at(1) != mine.numel())
    throw ConfigError(fmt::format("'{}' of the checkpoint has {} values per worker, but this model has {}; resume with the same recipe",
                                  name, shape->empty() ? 1 : shape->back(), mine.numel()));
  return shape->at(0);
}

/// [rows, count]: a block of columns of all rows.
at::Tensor columns(std::span<const step::NamedTensor> state, const std::string& name, std::int64_t rows, std::int64_t begin,
                   std::int64_t count) {
  std::vector<at::Tensor> stretch;
  for (std::int64_t row = 0; row < rows; ++row) stretch.push_back(step::saved_rows(state, name, row, row + 1).narrow(1, begin, count));
  return at::cat(stretch);
}

}  // namespace

step::NamedTensor own_row(const comm::Communicator& comm, const std::string& name, const at::Tensor& mine) {
  return step::rows_of(name, mine.reshape({1, mine.numel()}), comm.rank(), comm.size());
}

void take_row(const comm::Communicator& comm, std::span<const step::NamedTensor> state, const std::string& name, at::Tensor& mine) {
  const std::int64_t rows = checked_rows(state, name, mine);
  if (rows == comm.size()) {
    mine.copy_(step::saved_rows(state, name, comm.rank(), comm.rank() + 1)[0]);
    return;
  }
  by_columns(mine.numel(), [&](std::int64_t begin, std::int64_t count) {
    mine.narrow(0, begin, count).copy_(columns(state, name, rows, begin, count).mean(0));
  });
}

void average_rows(comm::Communicator& comm, at::Tensor& mine) {
  if (comm.size() == 1) return;
  by_columns(mine.numel(), [&](std::int64_t begin, std::int64_t count) {
    at::Tensor rows = at::empty({comm.size(), count}, mine.options());
    rows[comm.rank()].copy_(mine.narrow(0, begin, count));
    comm.run(comm::all_gather(rows));
    mine.narrow(0, begin, count).copy_(rows.mean(0));
  });
}

void equalise(comm::Communicator& comm, nn::Model& module) {
  if (comm.size() == 1) return;
  for (const tensor::Arena* arena : {&module.arena(), &module.statistics()})
    for (const tensor::OwnedRange& range : arena->ranges(/*are_private=*/false))
      comm.run(comm::broadcast(comm::Buffer(arena->parameters()).slice({range.begin, range.end})));
  for (const nn::Untrained& item : module.network().untrained()) broadcast_bytes(item.tensor, comm);
  module.refresh();
}

}  // namespace paceline::data_parallel
