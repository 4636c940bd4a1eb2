// What collectives on shared memory do with it: copies and sums, by the calling thread or on a GPU's stream. Whatever a rank reads or
// writes of another's data goes through here, so that a test can count it (tests/comm/lowering_test.cpp).
#pragma once

#include <span>

#include "paceline/comm/operation.h"

namespace paceline::comm::shared {

class Mover {
 public:
  virtual ~Mover() = default;
  /// For an operation on `buffer`, which says on whose stream. At least one byte.
  virtual void copy(void* to, const void* from, std::int64_t bytes, const Buffer& buffer) const;
  /// `outs` become the combination of `ins` in their order, divided (reduce.h).
  virtual void combine(const Operation& op, std::span<const void* const> ins, std::span<void* const> outs, std::int64_t count,
                       int divisor) const;
};

}  // namespace paceline::comm::shared
