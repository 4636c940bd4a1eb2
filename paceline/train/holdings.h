// Who holds which part of the state: the same answer on all workers, derived from what each of them reports. If several hold a part, one of
// them writes it and one hashes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/step/state.h"

namespace paceline::train {

struct HeldPart {
  std::vector<std::int64_t> first, shape;  // the box
  std::int64_t bytes = 0;
  std::vector<int> holders;        // ascending
  std::optional<std::size_t> own;  // its index in this worker's report
  std::size_t of_first = 0;        // its index in the report of the first holder

  bool held_by(int rank) const;
};

struct HeldTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole
  std::int64_t element = 0;         // bytes
  std::vector<HeldPart> parts;      // each box once; together they cover the tensor
};

/// In rank 0's order of the state; names that it does not report are placed where the others report them. Collective. InternalError if the
/// parts do not cover a tensor.
std::vector<HeldTensor> gather_holdings(std::span<const step::NamedTensor> tensors, comm::Communicator& comm);
/// For a single worker that holds everything, or everything but what `others` report to it: they are numbered from 1 on.
std::vector<HeldTensor> holdings_of(std::span<const step::NamedTensor> tensors, std::span<const std::string> others = {});
/// What a worker holds, as a text.
std::string report_of(std::span<const step::NamedTensor> tensors);

/// Whether the boxes are disjoint and cover exactly `shape`.
bool make_a_whole(const std::vector<std::int64_t>& shape, std::span<const HeldPart> parts);

}  // namespace paceline::train
