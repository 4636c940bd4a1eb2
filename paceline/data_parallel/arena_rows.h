// State of the arena's length that belongs to one data-parallel worker, such as a compressor's residual, in checkpoints: for each tensor of
// the model a tensor [workers, …] with a row for each worker. So a run may resume with another mesh and another number of workers. The
// padding between entries is not saved, since it is never sent.
#pragma once

#include <optional>

#include "paceline/comm/communicator.h"
#include "paceline/step/state.h"
#include "paceline/tensor/arena.h"

namespace paceline::data_parallel {

/// What this rank holds of row `row` of `rows`: "<name>.<tensor of the model>", views of `flat` [length].
std::vector<step::NamedTensor> arena_rows(const tensor::Arena& arena, const std::string& name, const at::Tensor& flat, std::int64_t row,
                                          std::int64_t rows);

/// The number of rows that a checkpoint has; nothing if it has none of that name.
std::optional<std::int64_t> saved_arena_rows(const tensor::Arena& arena, std::span<const step::NamedTensor> state, const std::string& name);

/// Fills `flat` [length] with this worker's row or, if the number of workers has changed, with the mean of all rows, which preserves their
/// total effect. ConfigError if something is missing.
void take_arena_row(const comm::Communicator& comm, const tensor::Arena& arena, std::span<const step::NamedTensor> state,
                    const std::string& name, const at::Tensor& flat);

/// Fills `flat` [length] with the sum of all rows. ConfigError if something is missing.
void sum_arena_rows(const tensor::Arena& arena, std::span<const step::NamedTensor> state, const std::string& name, const at::Tensor& flat);

}  // namespace paceline::data_parallel
