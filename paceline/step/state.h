// The state of a training run as named tensors, which is what a checkpoint holds.
//
// A worker shows what it holds: tensors that all workers have alike, and rows of tensors that it alone has. Nobody gathers the whole: a
// checkpoint is written by those who hold it, and whoever resumes from it reads the rows that it needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::step {

/// Rows [first, first + how many there are) of a tensor that has `all` rows. A row is what lies behind one index of the first dimension.
struct Rows {
  std::int64_t first = 0, all = 0;
};

/// A tensor of the training state under a name that says nothing of the number of workers, or some of its rows.
///
/// All workers show the same names in the same order. A tensor of which they hold rows may come several times in succession, once for
/// each run of rows; a worker that holds none of them shows none (zero rows).
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  std::optional<Rows> rows = {};  // that this worker alone holds; nothing: the whole, alike on all workers

  std::int64_t first() const { return rows ? rows->first : 0; }
  std::vector<std::int64_t> shape() const;  // of the whole
};
/// Part of the name of what says how a run came to its state, not what its next step computes: who is connected, what was counted. A
/// checkpoint keeps it, and state_hash leaves it out.
inline constexpr std::string_view kBookkeeping = ".bookkeeping.";

/// The shape of the tensor of that name; nothing where it is not there.
std::optional<std::vector<std::int64_t>> saved_shape(std::span<const NamedTensor> state, const std::string& name);
/// Its rows [begin, end): without a copy where they lie in one piece. ConfigError where some are missing.
at::Tensor saved_rows(std::span<const NamedTensor> state, const std::string& name, std::int64_t begin, std::int64_t end);
/// The tensor of that name; an undefined one where it is not there. Assembled where it lies in pieces: for small ones.
at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name);
/// The tensor of that name. ConfigError where it is not there.
at::Tensor find_saved(std::span<const NamedTensor> state, const std::string& name);

}  // namespace paceline::step
