#include "paceline/central/settings.h"

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/ps/rule.h"
#include "paceline/ps/transports/push_coder.h"
#include "paceline/step/momentum.h"

namespace paceline::central {
namespace {

/// Only the virtual clock can delay messages, and a run can only be recorded if a single server sees all of its real workers.
/// `executor`: null while the device decides.
void check_timing(const ps::TimingConfig& timing, const ps::Executor* executor, std::int64_t servers) {
  if (timing.varies_network() && executor && !executor->make.virtual_clock)
    throw ConfigError(
        fmt::format("timing.{} is for the virtual clock, but ps.executor={} sends real messages; use ps.executor=virtual, or "
                    "timing.slow_workers, which also slows down real workers",
                    !timing.transfers           ? "transfers"
                    : timing.slow_links.empty() ? "network_distribution"
                                                : "slow_links",
                    executor->key));
  if (timing.record.empty()) return;
  if (executor && !executor->make.threads())
    throw ConfigError(fmt::format(
        "timing.record records the real workers of one process, not those of ps.executor={}; use ps.executor=threads", executor->key));
  if (servers > 1)
    throw ConfigError(fmt::format(
        "timing.record: each of the {} servers has its own order of events, but only one can be recorded; use ps.servers=1", servers));
}

/// The rule and the server's optimizer must be able to use compressed pushes.
void check_compression(const std::string& compression, const ps::PsConfig& ps, const optim::OptimConfig& optim, int workers) {
  const auto rule = ps::make_rule({ps, optim, workers});
  ps::PushCompression{.name = compression}.check(rule->needs().replica);
  if (!step::corrects_momentum(compression)) return;
  if (ps.pushes_steps())
    throw ConfigError(fmt::format(
        "comm.compression={} keeps its own momentum, but with ps.optimizer=worker the steps already contain one; use ps.optimizer=server",
        compression));
  ps::check_takes_steps(ps.rule, *rule, fmt::format("comm.compression={} pushes velocities", compression), "comm.compression=topk");
  step::optimizer_behind(compression, optim);
}

}  // namespace

void Settings::validate(const optim::OptimConfig& optim, const std::string& compression) const {
  ps::validate(ps, optim, workers);
  ps::validate(timing, workers);
  if (ps.by_virtual_clock() && ps.servers > 1)
    throw ConfigError(fmt::format(
        "ps.servers={}, but with ps.executor=virtual one thread does everything; use ps.servers=1 or ps.executor=threads", ps.servers));
  check_timing(timing, ps.leaves_executor_open() ? nullptr : &ps.executor_on(false), ps.servers);
  if (ps.by_processes() && compression != "none") check_compression(compression, ps, optim, workers);
}

bool Settings::asynchronous() const { return !ps::consistency_kind(ps.consistency).synchronous; }
bool Settings::has_stale_gradients() const { return ps::consistency_kind(ps.consistency).stale; }

const ps::Executor& Settings::executor_on(bool gpu) const {
  const ps::Executor& executor = ps.executor_on(gpu);
  if (executor.make.virtual_clock && ps.servers > 1)
    throw ConfigError(
        fmt::format("ps.servers={}, but on a GPU ps.executor=auto is virtual, where one thread does everything; use ps.servers=1 or "
                    "ps.executor=threads",
                    ps.servers));
  check_timing(timing, &executor, ps.servers);
  return executor;
}

}  // namespace paceline::central
