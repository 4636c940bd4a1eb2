// The consistencies. To add one: its file here, its line in all.h, a row in the table, a script in tests/ps/consistency_test.cpp.
#include "paceline/ps/consistency/all.h"

#include <fmt/format.h>

namespace paceline::ps {
namespace {

constexpr Entry<MakeConsistency> kConsistencies[] = {
    {"bsp", "bulk synchronous: one update with the mean of all workers' gradients, everybody waits for it", bsp},
    {"ssp", "stale synchronous: a worker waits while it is more than `staleness` iterations ahead of the slowest", ssp},
    {"asp", "asynchronous: every gradient is applied when it comes, nobody waits", asp},
    {"k_sync", "the first `group` workers' gradients make an update, the rest of the round is cancelled", k_sync},
    {"k_batch_sync", "the first `group` minibatches from anybody make an update, the rest of the round is cancelled", k_batch_sync},
    {"k_async", "gradients of `group` different workers make an update, nobody is cancelled", k_async},
    {"k_batch_async", "any `group` minibatches make an update, nobody is cancelled or waits", k_batch_async},
    {"adasync", "k_async whose `group` grows as the loss falls", adasync},
};

}  // namespace

std::span<const Entry<MakeConsistency>> consistencies() { return kConsistencies; }

std::unique_ptr<Consistency> make_consistency(const std::string& name, const ConsistencyConfig& config, int workers) {
  const auto& row = find(consistencies(), "consistency", name);
  if (workers < 1) throw ConfigError(fmt::format("a parameter server needs at least 1 worker, not {}", workers));
  return row.make(config, workers);
}

void ConsistencyConfig::describe(Section& section) {
  section.field("staleness", bound, "ssp: iterations that a worker may be ahead of the slowest when it pulls").at_least(0);
  section.field("group", group, "k_*: gradients of one update; adasync: at first; 0: half of the workers").at_least(0);
  section.field("loss_exponent", loss_exponent, "adasync: the group grows as (first loss / loss) to this power").at_least(0);
}

void check_state(bool sound) {
  if (!sound)
    throw ConfigError("the checkpoint holds no state of this consistency; resume with the ps.consistency that it was written with");
}

}  // namespace paceline::ps
