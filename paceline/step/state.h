// The state of a training run as named tensors, which is what a checkpoint holds.
//
// A worker reports what it holds: whole tensors, or boxes of them. Several workers may report the same box; together they report all.
// Names, shapes and boxes are those of the whole network, so that neither a checkpoint nor a hash depends on the number of workers or on
// how the model was split. No worker gathers the whole: each writes its part of a checkpoint, and a worker that resumes reads the boxes
// that it needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::step {

/// Where a part lies in a whole tensor; its own shape is its extent.
struct Box {
  std::vector<std::int64_t> first;  // index in every dimension
  std::vector<std::int64_t> whole;  // shape
};

/// A tensor of the training state, or a box of it, under a name that does not depend on the number of workers.
///
/// All workers report the same names in the same order. A worker may report several boxes of a tensor in succession; if it holds nothing of
/// it, it reports the name alone (others_hold).
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  std::optional<Box> box = {};  // none: all of it
  bool copied = false;          // made for the receiver: nothing else writes to it, so it need not be copied again

  std::vector<std::int64_t> first() const;  // in every dimension of the whole
  std::vector<std::int64_t> shape() const;  // of the whole
  bool held() const { return !box || tensor.numel() > 0; }
};

/// The name of a tensor of which this worker holds nothing.
NamedTensor others_hold(const std::string& name, const at::TensorOptions& options);
/// Rows [first, first + how many there are) of a tensor with `all` rows, along the first dimension.
NamedTensor rows_of(const std::string& name, const at::Tensor& rows, std::int64_t first, std::int64_t all);

/// What the strategy of a resumed run begins with: what all workers saved, perhaps another number of them or with another strategy.
struct Resumed {
  std::vector<NamedTensor> state;
  std::string source;  // its name, for messages

  /// Calls `load` with the state. Its ConfigError is passed on with the source's name.
  void give_to(const std::function<void(std::span<const NamedTensor>)>& load) const;
};

/// Part of the names of state that the next step does not depend on: who is connected, what was counted. A checkpoint keeps it, and
/// state_hash leaves it out.
inline constexpr std::string_view kBookkeeping = ".bookkeeping.";

/// The shape of the tensor of that name; nullopt if it is missing.
std::optional<std::vector<std::int64_t>> saved_shape(std::span<const NamedTensor> state, const std::string& name);
/// Its box that begins at `first`, of that shape: without a copy if it is in one piece. ConfigError if some of it is missing.
at::Tensor saved_box(std::span<const NamedTensor> state, const std::string& name, const std::vector<std::int64_t>& first,
                     const std::vector<std::int64_t>& shape);
/// Its rows [begin, end).
at::Tensor saved_rows(std::span<const NamedTensor> state, const std::string& name, std::int64_t begin, std::int64_t end);
/// The tensor of that name; undefined if it is missing. Assembled if it is in pieces: for small ones.
at::Tensor saved_or_none(std::span<const NamedTensor> state, const std::string& name);
/// The tensor of that name. ConfigError if it is missing.
at::Tensor find_saved(std::span<const NamedTensor> state, const std::string& name);

}  // namespace paceline::step
