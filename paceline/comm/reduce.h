// The kernels under every reduction on a CPU. Elements are combined in the order of the arguments and rounded to their type after each
// combination, as a schedule that moves them step by step would do, so that both give the same bits.
#pragma once

#include <span>

#include "paceline/comm/dtype.h"

namespace paceline::comm {

/// into[i] = into[i] ⊕ from[i]. `mean` only adds; divide() completes it.
void combine(DType dtype, ReduceOp op, void* into, const void* from, std::int64_t count);

/// out[i] = (in₀[i] ⊕ in₁[i] ⊕ …) ÷ divisor for every out, in one pass over memory. An out may be one of the ins, at the same address.
void combine_all(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out, std::int64_t count, int divisor);

/// values[i] = values[i] ÷ divisor; integers are truncated towards zero.
void divide(DType dtype, void* values, std::int64_t count, int divisor);

}  // namespace paceline::comm
