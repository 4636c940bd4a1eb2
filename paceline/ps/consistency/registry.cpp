// The consistencies. To add one: its file here, its lines below, a script in tests/ps/consistency_test.cpp.
#include "paceline/ps/consistency.h"

#include <fmt/format.h>

namespace paceline::ps {

// Each comes from the file of its name.
std::unique_ptr<Consistency> bsp(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> ssp(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> asp(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_sync(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_batch_sync(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_async(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> k_batch_async(const ConsistencyConfig& config, int workers);
std::unique_ptr<Consistency> adasync(const ConsistencyConfig& config, int workers);

namespace {

constexpr Entry<ConsistencyKind> kConsistencies[] = {
    {"bsp",
     "bulk synchronous: one update with the mean of all workers' gradients; all of them wait for it",
     {.make = bsp, .gathers = true, .stale = false, .synchronous = true}},
    {"ssp", "stale synchronous: a worker waits while it is more than `staleness` iterations ahead of the slowest", {.make = ssp}},
    {"asp", "asynchronous: every gradient is applied on arrival; no worker waits", {.make = asp, .waits = false}},
    {"k_sync",
     "the gradients of the first `group` workers make an update; the rest of the round is cancelled",
     {.make = k_sync, .gathers = true, .chooses = true, .stale = false}},
    {"k_batch_sync",
     "the first `group` minibatches of any workers make an update; the rest of the round is cancelled",
     {.make = k_batch_sync, .gathers = true, .chooses = true, .stale = false, .waits = false}},
    {"k_async",
     "gradients of `group` different workers make an update; none is cancelled",
     {.make = k_async, .gathers = true, .chooses = true}},
    {"k_batch_async",
     "any `group` minibatches make an update; none is cancelled, and no worker waits",
     {.make = k_batch_async, .gathers = true, .chooses = true, .waits = false}},
    {"adasync", "k_async with a `group` that grows as the loss falls", {.make = adasync, .gathers = true, .chooses = true}},
};

}  // namespace

std::span<const Entry<ConsistencyKind>> consistencies() { return kConsistencies; }

const ConsistencyKind& consistency_kind(const std::string& name) { return find(consistencies(), "consistency", name).make; }

std::unique_ptr<Consistency> make_consistency(const std::string& name, const ConsistencyConfig& config, int workers) {
  const ConsistencyKind& kind = consistency_kind(name);
  if (workers < 1) throw ConfigError(fmt::format("a parameter server needs at least 1 worker, not {}", workers));
  return kind.make(config, workers);
}

void ConsistencyConfig::describe(Section& section) {
  section.field("staleness", bound, "ssp: iterations that a worker may be ahead of the slowest when it pulls").at_least(0);
  section.field("group", group, "k_*: gradients per update; adasync: gradients per update at first; 0: half of the workers").at_least(0);
  section.field("loss_exponent", loss_exponent, "adasync: the group grows as (first loss / loss) to this power").at_least(0);
}

void check_state(bool sound) {
  if (!sound)
    throw ConfigError("the checkpoint holds no state of this consistency; resume with the ps.consistency that it was written with");
}

}  // namespace paceline::ps
