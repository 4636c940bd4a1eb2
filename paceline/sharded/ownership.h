// Who owns which part of an arena under ZeRO: of every bucket, each data-parallel worker the part that a reduce-scatter gives it.
//
//   stage 1   moments (and master copies)      every worker updates its part, and hands the new parameters round
//   stage 2   and gradients                    what is reduced and not one's own is released at once
//   stage 3   and parameters                   a unit's are gathered when it computes (gathering_model.h), and none are sent after updates
#pragma once

#include <vector>

#include "paceline/data_parallel/buckets.h"
#include "paceline/tensor/owners.h"

namespace paceline::sharded {

/// `buckets` are all of the arena's, in any order. Private entries, which are in none, belong to all: every worker holds its own.
tensor::Owners part_owners(const tensor::Arena& arena, std::vector<data_parallel::Bucket> buckets, int workers);

/// Payload that each of `workers` sends in a reduce-scatter, or in an all-gather, of this many bytes: half of an allreduce's.
inline std::int64_t scatter_bytes(std::int64_t bytes, int workers) { return bytes * (workers - 1) / workers; }

}  // namespace paceline::sharded
