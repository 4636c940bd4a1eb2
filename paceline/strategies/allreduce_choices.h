// What `allreduce` chooses if a recipe leaves it open: whether updates are sharded, which bucket plans it tries, and when it updates. The
// choices depend only on the facts below, so that a prediction made before a run makes the same ones.
#pragma once

#include <string>
#include <vector>

#include "paceline/data_parallel/bucket_tuner.h"
#include "paceline/strategies/registry.h"

namespace paceline::strategies {

struct AllreduceFacts {
  int workers = 1, hosts = 1;  // along the data axis
  int tensor = 1;              // ranks that divide layers
  bool on_cpu = true;
  bool direct_sums = true;  // ranks of a host reduce in shared memory, so that one algorithm serves all collectives
  bool shaped = false;      // links are slowed down artificially
  bool repeatable = true;
  bool elementwise = true;  // the optimizer needs no norms of tensors
  bool clips = false, scales_loss = false;
  int zero = 0;
  std::string compression = "none";
  bool bf16_gradients = false;
  std::string private_entry = {};  // the name of a private entry; empty: there is none
  std::int64_t bytes = 0;          // of all parameters in fp32
};

struct AllreduceChoices {
  bool sharded = false;                              // each worker updates a part of every bucket
  bool updates_at_end = false;                       // of all parameters at once
  std::vector<data_parallel::BucketPlan> cuts = {};  // to be tried; a single one if there is nothing to choose
};

/// Whether each worker updates a part of every bucket, if the recipe permits that.
bool shares_updates(const StrategyConfig& config, const AllreduceFacts& facts);

/// ConfigError if the recipe asks for something impossible.
AllreduceChoices choose(const StrategyConfig& config, const AllreduceFacts& facts);

}  // namespace paceline::strategies
