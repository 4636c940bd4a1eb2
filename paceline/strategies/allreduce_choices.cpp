#include "paceline/strategies/allreduce_choices.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::strategies {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kBucketBytes = 8 * kMiB;  // used if nothing is measured

bool asks_for_shards(const StrategyConfig& config, const AllreduceFacts& facts) { return facts.zero > 0 || config.update == "sharded"; }

void check_choices(const StrategyConfig& config, const AllreduceFacts& facts) {
  const bool asked = asks_for_shards(config, facts), is_private = !facts.private_entry.empty();
  if (asked && facts.compression != "none")
    throw ConfigError(
        fmt::format("{} with comm.compression={}: a part of a bucket cannot be compressed by itself; use comm.compression=none, or "
                    "parallel.zero=0 and strategy.update=whole",
                    facts.zero > 0 ? fmt::format("parallel.zero={}", facts.zero) : "strategy.update=sharded", facts.compression));
  if (facts.zero > 0 && config.update == "whole")
    throw ConfigError(fmt::format(
        "parallel.zero={} divides updates among workers, but strategy.update=whole does not; leave one of them out", facts.zero));
  if (is_private && facts.compression != "none")
    throw ConfigError(fmt::format(
        "comm.compression={} compresses gradients that all workers share, but '{}' is divided among the workers; use comm.compression=none",
        facts.compression, facts.private_entry));
}

/// Whether an element's sum has the same bits whatever the bucket plan. With three or more summands, the order of additions depends on
/// where in its bucket the element lies (direct, ring), or on the algorithm chosen for the bucket's length. Squares for norms are added
/// owner by owner, and the owners follow from the buckets.
bool cut_keeps_bits(const AllreduceFacts& facts, bool sharded) {
  return facts.workers <= 2 && !(sharded && (facts.clips || !facts.elementwise));
}

std::vector<data_parallel::BucketPlan> cuts_of(const StrategyConfig& config, const AllreduceFacts& facts, bool sharded) {
  const bool by_unit = facts.zero == 3 || (facts.zero == 2 && !facts.on_cpu);
  if (!facts.on_cpu || facts.workers == 1) return {{0, false, by_unit}};
  const bool many_hosts = facts.hosts > 1 || facts.shaped;
  const bool may_measure = facts.zero < 2 && facts.compression == "none" && (cut_keeps_bits(facts, sharded) || !facts.repeatable);
  if (config.bucket_mb > 0 || !may_measure) {
    const auto bytes = config.bucket_mb > 0 ? static_cast<std::int64_t>(config.bucket_mb * kMiB) : kBucketBytes;
    return {{bytes, config.overlap == "on" || (config.overlap == "auto" && many_hosts), by_unit}};
  }
  std::vector<data_parallel::BucketPlan> tried;
  if (config.overlap != "on") tried.insert(tried.end(), {{2 * kMiB, false}, {0, false}});
  if (config.overlap != "off") tried.insert(tried.end(), {{2 * kMiB, true}, {8 * kMiB, true}, {25 * kMiB, true}});
  std::erase_if(tried, [&](const data_parallel::BucketPlan& cut) { return cut.bytes >= facts.bytes; });
  if (tried.empty()) tried.push_back({0, config.overlap == "on"});
  return tried;
}

}  // namespace

/// The default, if the recipe leaves it open: yes if it costs nothing and changes no bit. A reduce-scatter adds in the same order as an
/// allreduce if there are two summands, or one algorithm for both.
bool shares_updates(const StrategyConfig& config, const AllreduceFacts& facts) {
  const bool keeps_bits = facts.workers <= 2 || (facts.hosts == 1 && facts.direct_sums);
  const bool free = facts.elementwise && !facts.clips && facts.on_cpu && facts.compression == "none" && !facts.bf16_gradients &&
                    facts.hosts == 1 && keeps_bits;
  return asks_for_shards(config, facts) || (config.update == "auto" && free);
}

AllreduceChoices choose(const StrategyConfig& config, const AllreduceFacts& facts) {
  AllreduceChoices choices;
  if (facts.workers > 1) check_choices(config, facts), choices.sharded = shares_updates(config, facts);
  choices.cuts = cuts_of(config, facts, choices.sharded);
  // Between the layers of a pass, workers arrive at different times, so in stage 2 they synchronise no more often than necessary.
  const bool meets_in_pass = facts.workers > 1 && facts.zero == 2 && !choices.cuts.front().overlap;
  choices.updates_at_end = facts.clips || !facts.on_cpu || facts.scales_loss || meets_in_pass ||
                           ((choices.sharded || facts.tensor > 1 || !facts.private_entry.empty()) && !facts.elementwise);
  return choices;
}

}  // namespace paceline::strategies
