#include "paceline/ps/config.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/ps/readings.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {

void PsConfig::describe(Section& section) {
  const auto keys = [](const auto& table) {
    std::vector<std::string_view> result;
    for (const auto& entry : table) result.push_back(entry.key);
    return result;
  };
  std::string who = "who the servers and workers are; auto: threads, on a GPU virtual";
  std::vector<std::string_view> allowed = {kAuto};
  for (const Executor& row : executors()) who += fmt::format("; {}: {}", row.key, row.help), allowed.push_back(row.key);
  section.field("executor", executor, who).one_of(allowed);
  section.field("transport", transport, "processes: gRPC, or MPI among the ranks that mpirun started").one_of({"grpc", "mpi"});
  section.field("rule", rule, "strategy.name=ps: what the server does with a gradient").one_of(keys(update_rules()));
  section.field("consistency", consistency, "strategy.name=ps: who waits for whom").one_of(keys(consistencies()));
  section.field("servers", servers, "number of servers that share the parameters").at_least(1);
  section
      .field("optimizer", optimizer,
             "where the optimizer runs: on the server, which gets gradients, or on each worker, which pushes its steps")
      .one_of({"server", "worker"});
  ConsistencyConfig::describe(section);
  section
      .field("statistics", statistics,
             "batch-norm statistics for evaluation: the server's (Async-BN), a worker's own, or recomputed from training data")
      .one_of({"async", "worker", "recomputed"});
  section.field("norm_share", norm_share, "Async-BN: share of a new report in the server's statistics").above(0).at_most(1);
  section.field("compensation", compensation, "dc_asgd: constant strength, or strength adapted to the mean square of the gradients")
      .one_of({"constant", "adaptive"});
  section.field("dc_lambda", dc_lambda, "dc_asgd: strength; 0: 0.04 (constant), 2 (adaptive)").at_least(0);
  section.field("dc_decay", dc_decay, "dc_asgd, adaptive: decay of the mean square").at_least(0).at_most(1);
  section.field("reading", reading, "lc_asgd: how the gradient of the compensated loss is read").one_of(keys(readings()));
  section.field("lc_lambda", lc_lambda, "lc_asgd: weight of the predicted losses").at_least(0);
  section.field("clip_low", clip_low, "lc_asgd: smallest factor that a gradient is multiplied by").above(0);
  section.field("clip_high", clip_high, "lc_asgd: largest factor that a gradient is multiplied by").above(0);
  PredictorConfig::describe(section);
  section.field("gap_decay", gap_decay, "gap_aware: decay of the mean squared step").at_least(0).at_most(1);
  section
      .field("gap_rate", gap_rate,
             "gap_aware: learning rate of the usual step that gaps are measured by: that of the steps made, or the largest so far (the "
             "authors' code)")
      .one_of({"current", "maximal"});
  section.field("curvature_decay", curvature_decay, "stability_cap: decay of the running means of curvature and staleness")
      .at_least(0)
      .at_most(1);
  section.field("stability_margin", stability_margin, "stability_cap: largest rate as a share of the stability limit").above(0);
  section
      .field("averaging", averaging,
             "decay of a running mean of the server's parameters, which is evaluated and saved in their place; 0: none")
      .at_least(0)
      .at_most(1);
  section.field("lock_free", lock_free, "threads: workers update the parameters without waiting for one another (Hogwild)");
  OuterConfig::describe(section);
  section.field("period", period, "downpour, easgd, local steps: steps of a worker between two visits to the server").at_least(1);
  section.field("speeds", speeds, "easgd, local steps: relative speed of each worker; a slower one makes fewer than ps.period steps (DyLU)")
      .above(0);
  section.field("deadline_s", deadline_s, "seconds after which a silent worker is given up; workers wait twice as long for a lost server")
      .above(0)
      .at_most(86400);
  section.field("snapshot_s", snapshot_s, "processes: seconds between two snapshots of a server, from which it can be restarted; 0: none")
      .at_least(0)
      .at_most(1e6);
  section.field("replica", replica,
                "processes: write every push to a journal before it is acknowledged, so that a restarted server has them all; "
                "implied by several synchronous servers with --max-restarts");
  section.field("certificate", certificate, "processes: PEM file with this side's certificate; with key and authority: mutual TLS");
  section.field("key", key, "processes: PEM file with its private key");
  section.field("authority", authority, "processes: PEM file with the certificate of the authority that signed the other side's");
  section.field("allow_insecure", allow_insecure, "processes: talk to other hosts in plain text if there are no certificates");
  section.field("elasticity", elasticity, "easgd: how strongly replicas and server attract each other; 0: 0.9 / workers").at_least(0);
}

namespace {

void validate_speeds(const PsConfig& config, const UpdateRule& rule, int workers) {
  if (config.speeds.empty()) return;
  if (std::ssize(config.speeds) != workers)
    throw ConfigError(fmt::format("ps.speeds has {} numbers, and there are {} workers; give one for each", config.speeds.size(), workers));
  if (config.period == 1 || !(rule.needs().replica || config.pushes_steps()))
    throw ConfigError(
        fmt::format("ps.speeds shortens ps.period of workers that make steps with optimizers of their own; use ps.optimizer=worker with a "
                    "rule that has a ps.period above 1 (now '{}' and {}), or leave ps.speeds out",
                    config.rule, config.period));
}

/// An update must be a single addition to every parameter: nothing else stays correct if other threads write in between.
void validate_lock_free(const PsConfig& config, const optim::OptimConfig& optim) {
  const auto refuse = [](const std::string& what, const std::string& instead) {
    throw ConfigError(fmt::format("ps.lock_free adds every gradient to the parameters as it comes, and {}; use {}, or ps.lock_free=false",
                                  what, instead));
  };
  if (!config.by_threads()) refuse(fmt::format("ps.executor={} has no threads that share them", config.executor), "ps.executor=threads");
  if (!find(update_rules(), "update rule", config.rule).make.adds) refuse(fmt::format("rule '{}' does more", config.rule), "ps.rule=asgd");
  const ConsistencyKind& consistency = consistency_kind(config.consistency);
  if (consistency.waits || consistency.gathers)
    refuse(fmt::format("consistency '{}' {}", config.consistency, consistency.waits ? "makes workers wait" : "gathers several of them"),
           "ps.consistency=asp");
  if (config.averaging > 0) refuse("ps.averaging has a second copy of them to update", "ps.averaging=0");
  const optim::OptimConfig made = server_optimizer(config, optim);
  const auto optimizer = optim::make_optimizer(made);
  if (!optimizer->state_names().empty() || !optimizer->elementwise() || made.clip_norm > 0)
    refuse("the server's optimizer keeps something beside them",
           "optim.name=sgd optim.momentum=0 optim.clip_norm=0, or ps.optimizer=worker");
}

}  // namespace

const Executor& PsConfig::executor_on(bool gpu) const {
  return find(executors(), "executor", !leaves_executor_open() ? executor : gpu ? kVirtual : kThreads);
}

bool PsConfig::by_threads() const { return !leaves_executor_open() && executor_on(false).make.threads(); }
bool PsConfig::by_processes() const { return !leaves_executor_open() && executor_on(false).make.processes; }
bool PsConfig::by_virtual_clock() const { return !leaves_executor_open() && executor_on(false).make.virtual_clock; }

std::int64_t period_of(const PsConfig& config, std::int64_t period, int worker) {
  if (static_cast<std::size_t>(worker) >= config.speeds.size()) return period;
  const double share = config.speeds[static_cast<std::size_t>(worker)] / *std::ranges::max_element(config.speeds);
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(period)));
}

void validate(const PsConfig& config, const optim::OptimConfig& optim, int workers) {
  for (const auto& [key, value] :
       {std::pair{"lc_lambda", config.lc_lambda}, {"dc_lambda", config.dc_lambda}, {"clip_high", config.clip_high}})
    if (!std::isfinite(value)) throw ConfigError(fmt::format("ps.{}={} is not a number; use one like 1.0", key, value));
  for (const auto& [key, value] : {std::pair{"dc_decay", config.dc_decay},
                                   {"gap_decay", config.gap_decay},
                                   {"curvature_decay", config.curvature_decay},
                                   {"averaging", config.averaging}})
    if (value >= 1) throw ConfigError(fmt::format("ps.{}={} keeps its first mean for ever; use less than 1, like 0.95", key, value));
  if (config.clip_low > config.clip_high)
    throw ConfigError(fmt::format("ps.clip_low={} is above ps.clip_high={}", config.clip_low, config.clip_high));
  validate(static_cast<const OuterConfig&>(config));
  const auto rule = make_rule({config, optim, workers});
  validate_speeds(config, *rule, workers);
  if (const std::string why = rule->why_not_gradients(); !why.empty() && !config.pushes_steps())
    throw ConfigError(
        fmt::format("rule '{}' {}, and ps.optimizer=server lets them push gradients; use ps.optimizer=worker", config.rule, why));
  if (config.servers > 1 && rule->needs().whole_range)
    throw ConfigError(fmt::format("rule '{}' measures all parameters together, and {} servers have a part each; use ps.servers=1",
                                  config.rule, config.servers));
  if (config.lock_free) validate_lock_free(config, optim);
  make_consistency(config.consistency, config, workers);
  const int files = !config.certificate.empty() + !config.key.empty() + !config.authority.empty();
  if (files != 0 && files != 3) throw ConfigError("TLS needs all three of ps.certificate, ps.key and ps.authority; give all or none");
  if (config.replica && config.snapshot_s == 0)
    throw ConfigError(
        "ps.replica=true keeps a journal since the last snapshot, and ps.snapshot_s=0 makes no snapshots; use a value like 60");
  const ConsistencyKind& consistency = consistency_kind(config.consistency);
  if (config.servers > 1 && consistency.chooses)
    throw ConfigError(fmt::format("consistency '{}' chooses gradients, and {} servers would choose differently; use ps.servers=1",
                                  config.consistency, config.servers));
  if (config.servers > 1 && optim.clip_norm > 0 && !config.pushes_steps())
    throw ConfigError("optim.clip_norm needs the whole gradient in one place; use ps.servers=1 or ps.optimizer=worker");
  if (rule->needs().whole_update && consistency.gathers)
    throw ConfigError(
        fmt::format("rule '{}' applies every push separately, and consistency '{}' gathers several; use ps.consistency=asp or ssp",
                    config.rule, config.consistency));
  if (config.transport == "mpi" && !config.by_processes())
    throw ConfigError(
        fmt::format("ps.transport=mpi is between processes, and ps.executor={} has one; use ps.executor=processes", config.executor));
  if (config.transport == "mpi" && config.replica)
    throw ConfigError("ps.replica=true is for servers that are restarted, and ranks of MPI are not; use ps.transport=grpc");
  if (config.pushes_steps()) check_takes_steps(config.rule, *rule, "ps.optimizer=worker pushes steps", "ps.optimizer=server");
}

void check_takes_steps(const std::string& name, const UpdateRule& rule, const std::string& pushed, const std::string& mend) {
  if (const std::string why = rule.why_not_steps(); !why.empty())
    throw ConfigError(fmt::format("{}, and rule '{}' {}; use {}, or another rule", pushed, name, why, mend));
}

optim::OptimConfig server_optimizer(const PsConfig& config, const optim::OptimConfig& optim) {
  return config.pushes_steps() ? optim::OptimConfig{.name = "sgd", .momentum = 0} : optim;
}

}  // namespace paceline::ps
