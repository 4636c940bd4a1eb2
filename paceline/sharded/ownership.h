// Who owns which part of an arena under ZeRO: each data-parallel worker owns the part of every bucket that a reduce-scatter gives it.
//
//   stage 1   moments (and master copies)      every worker updates its part, and sends the new parameters to the others
//   stage 2   and gradients                    after the reduction, all but the worker's own part is released
//   stage 3   and parameters                   gathered unit by unit for the passes (gathering_model.h); updates send nothing
#pragma once

#include <vector>

#include "paceline/data_parallel/buckets.h"
#include "paceline/tensor/owners.h"

namespace paceline::sharded {

/// `buckets` are all those of the arena, in any order. Private entries, which are in none, belong to all: every worker holds its own.
tensor::Owners part_owners(const tensor::Arena& arena, std::vector<data_parallel::Bucket> buckets, int workers);

/// Payload that each of `workers` sends in a reduce-scatter, or in an all-gather, of this many bytes: half of an allreduce's.
inline std::int64_t scatter_bytes(std::int64_t bytes, int workers) { return bytes * (workers - 1) / workers; }

}  // namespace paceline::sharded
