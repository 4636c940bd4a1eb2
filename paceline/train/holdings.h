// Who holds which part of the state: the same answer on all workers, from what each of them shows. Of parts that several hold, one writes
// and one hashes.
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
  std::optional<std::size_t> own;  // where it is in what this worker shows

  bool held_by(int rank) const;
};

struct HeldTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole
  std::int64_t element = 0;         // bytes
  std::vector<HeldPart> parts;      // each box once; they make a whole
};

/// In the order of the state, which is rank 0's; names that it does not show come where the others show them. Collective. InternalError
/// where what the workers show does not make a whole.
std::vector<HeldTensor> gather_holdings(std::span<const step::NamedTensor> tensors, comm::Communicator& comm);
/// Of one who has everything.
std::vector<HeldTensor> holdings_of(std::span<const step::NamedTensor> tensors);

/// Whether boxes lie apart, inside of `shape`, and cover it.
bool make_a_whole(const std::vector<std::int64_t>& shape, std::span<const HeldPart> parts);

}  // namespace paceline::train
