#include "paceline/comm/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/comm/engine.h"

namespace paceline::comm {

Nanoseconds CommConfig::connect_deadline(const World& world) const {
  using namespace std::chrono_literals;
  constexpr Nanoseconds kLeast = 30s, kEach = 10s;  // loading the libraries takes a rank about a second of a core
  return std::max({deadline(), kLeast, kEach * world.local_size / std::max(world.cores, 1)});
}

void CommConfig::check_for(int ranks) const {
  if (engine != "auto") engine_of(engine);
  if (fail_at.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("comm.fail_at=[{}] {}; write [rank, n] with n of at least 1", fmt::join(fail_at, ", "), why));
  };
  if (fail_at.size() != 2) refuse(fmt::format("has {} numbers", fail_at.size()));
  if (fail_at[0] < 0 || fail_at[0] >= ranks) refuse(fmt::format("names rank {}, but the ranks are 0 to {}", fail_at[0], ranks - 1));
  if (fail_at[1] < 1) refuse(fmt::format("names operation {}", fail_at[1]));
}

void CommConfig::describe(Section& section) {
  std::vector<std::string_view> engine_choices{"auto"}, algorithm_choices{"auto"};
  for (const std::string_view key : engine_keys()) engine_choices.push_back(key);
  for (const auto& row : schedule::algorithms()) algorithm_choices.push_back(row.key);
  section.field("engine", engine, "what carries messages between ranks; auto: the fastest that connects all of them")
      .one_of(engine_choices);
  section
      .field(
          "algorithm", algorithm,
          "algorithm of every collective that it implements; the others use ring. auto: the cheapest for each message, by built-in costs, "
          "or by measured costs with train.repeatable=false")
      .one_of(algorithm_choices);
  section.field("deadline_s", deadline_s, "seconds that an operation waits for a rank before it fails").above(0);
  section
      .field("silence_s", silence_s,
             "seconds without a heartbeat after which a rank counts as lost; ranks send heartbeats while they compute, too. 0: never, for "
             "debuggers")
      .at_least(0);
  section.field("record", record, "keep the last operations of each rank, and report at a deadline what the missing rank did last");
  section.field("check", check, "before each collective, check that all ranks call the same one (slower)");
  section.field("fail_at", fail_at, "[rank, n]: the n-th operation of this rank fails, to test how a run handles a failure");
  section
      .field("per_host", per_host, "count this many neighbouring ranks as one host, to emulate a cluster on one machine; 0: the real hosts")
      .at_least(0);
  section
      .field("link_gbit_per_s", link_gbit_per_s,
             "emulated bandwidth of each host in Gbit/s; 0: that of the real network. With per_host=0 every rank counts as a host")
      .at_least(0);
  section.field("link_latency_us", link_latency_us, "emulated latency of a message between hosts, in microseconds").at_least(0);
  section.field("link_jitter_us", link_jitter_us, "emulated jitter: largest random extra latency of a message, in microseconds")
      .at_least(0);
}

std::int64_t Communicator::bytes_sent(const Operation& operation) {
  const schedule::Algorithm& ring = schedule::algorithm_for("ring", operation.collective()).make;
  const schedule::Problem problem{
      .collective = operation.collective(), .rank = rank(), .size = size(), .count = operation.buffer.count, .root = operation.root};
  const schedule::Steps steps = ring.steps(ring.sized(problem, operation.buffer.bytes(), /*shares_memory=*/false));
  return schedule::count(steps).sent * size_of(operation.buffer.dtype);
}

std::vector<int> Communicator::hosts() const {
  std::vector<int> hosts(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) hosts[static_cast<std::size_t>(peer)] = peer / topology().per_host;
  return hosts;
}

}  // namespace paceline::comm
