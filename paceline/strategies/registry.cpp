#include "paceline/strategies/registry.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/central/central.h"

namespace paceline::strategies {

// Each is defined in the file of the same name.
std::unique_ptr<step::Strategy> make_single(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_allreduce(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_stale_sync(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_local_sgd(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_sparknet(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_easgd(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_diloco(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_gossip(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_ad_psgd(const StrategySettings& config, const step::Context& context);
std::unique_ptr<step::Strategy> make_sgp(const StrategySettings& config, const step::Context& context);

using Programs = std::vector<schedule::Program>;
Programs single_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs allreduce_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs stale_sync_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs local_sgd_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs sparknet_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs easgd_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs diloco_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs gossip_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs ad_psgd_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs sgp_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);
Programs served_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings);

namespace {

constexpr StrategyKind served(std::string_view rule, std::string_view consistency, std::string_view gives_up = {}) {
  return {.program = served_program, .rule = rule, .consistency = consistency, .gives_up = gives_up};
}
constexpr StrategyKind served_together(std::string_view rule, std::string_view consistency, std::string_view synchronous_with) {
  StrategyKind kind = served(rule, consistency);
  kind.synchronous_with = synchronous_with;
  return kind;
}

constexpr Entry<StrategyKind> kStrategies[] = {
    {"single", "one worker; no communication", {.make = make_single, .program = single_program, .alone = true, .together = true}},
    {"allreduce",
     "synchronous: the mean of all workers' gradients, sent while the backward pass continues",
     {.make = make_allreduce, .program = allreduce_program, .together = true, .buckets = true, .synchronous_with = ""}},
    {"stale_sync",
     "the mean of all workers' gradients of some steps ago, sent while later steps are computed",
     {.make = make_stale_sync,
      .program = stale_sync_program,
      .synchronous_with = "strategy.staleness=0",
      .gives_up = "gradients of the step before"}},
    {"local_sgd",
     "replicas that become their mean every few steps; post-local too",
     {.make = make_local_sgd,
      .program = local_sgd_program,
      .period = 8,
      .synchronous_with = "strategy.period=1",
      .gives_up = "replicas differ between meetings"}},
    {"sparknet",
     "replicas that a master averages every few steps",
     {.make = make_sparknet,
      .program = sparknet_program,
      .period = 8,
      .synchronous_with = "strategy.period=1",
      .gives_up = "replicas differ between meetings"}},
    {"easgd",
     "replicas and a centre that attract each other (elastic averaging, DeepSpark)",
     {.make = make_easgd, .program = easgd_program, .period = 8, .gives_up = "replicas differ"}},
    {"diloco",
     "replicas whose progress over many steps is the gradient of an outer Nesterov step",
     {.make = make_diloco, .program = diloco_program, .period = 500, .gives_up = "replicas differ between meetings"}},
    {"gossip",
     "replicas that average with one random neighbour after every step",
     {.make = make_gossip, .program = gossip_program, .gives_up = "replicas differ"}},
    {"ad_psgd",
     "the same without waiting: every worker at its own pace",
     {.make = make_ad_psgd, .program = ad_psgd_program, .asynchronous = true, .gives_up = "replicas differ, stale neighbours"}},
    {"sgp",
     "replicas that push half of themselves on along an exponential graph (push-sum)",
     {.make = make_sgp, .program = sgp_program, .gives_up = "replicas differ"}},
    {"ssgd", "parameter server: the mean of all workers' gradients (average × bsp)", served_together("average", "bsp", "")},
    {"asgd", "parameter server: every gradient on arrival, however stale (asgd × asp)", served("asgd", "asp", "stale gradients")},
    {"ssp", "parameter server: as asgd, but no worker runs further ahead than ps.staleness (asgd × ssp)",
     served("asgd", "ssp", "stale gradients, bounded")},
    {"dc_asgd", "parameter server: delay-compensated ASGD (dc_asgd × asp)", served("dc_asgd", "asp")},
    {"lc_asgd", "parameter server: loss-compensated ASGD, with predictors and Async-BN (lc_asgd × asp)", served("lc_asgd", "asp")},
    {"staleness_aware", "parameter server: the rate divided by the staleness (staleness_aware × asp)", served("staleness_aware", "asp")},
    {"gap_aware", "parameter server: gradients divided by how far the parameters moved (gap_aware × asp)", served("gap_aware", "asp")},
    {"dana", "parameter server: a momentum for each worker and a look-ahead (dana × asp)", served("dana", "asp")},
    {"downpour", "parameter server: workers visit it every ps.period steps (downpour × asp)", served("downpour", "asp")},
    {"k_sync", "parameter server: the mean of the first K workers, the others start over (average × k_sync)",
     served_together("average", "k_sync", "ps.group={workers}")},
    {"k_batch_sync", "parameter server: the mean of the first K minibatches (average × k_batch_sync)", served("average", "k_batch_sync")},
    {"k_async", "parameter server: the mean of K workers' gradients, no worker starts over (average × k_async)",
     served_together("average", "k_async", "ps.group={workers}")},
    {"k_batch_async", "parameter server: the mean of any K minibatches (average × k_batch_async)", served("average", "k_batch_async")},
    {"adasync", "parameter server: as k_async, with a K that grows (average × adasync)",
     served_together("average", "adasync", "ps.group={workers}")},
    {"ps", "parameter server: any ps.rule with any ps.consistency", served("", "")},
};

}  // namespace

std::span<const Entry<StrategyKind>> strategies() { return kStrategies; }

bool is_centralised(const std::string& name) {
  const auto found = std::ranges::find(kStrategies, name, &Entry<StrategyKind>::key);
  return found != std::end(kStrategies) && found->make.centralised();
}

std::int64_t period_of(const StrategyConfig& config) {
  const auto found = std::ranges::find(kStrategies, config.name, &Entry<StrategyKind>::key);
  if (found == std::end(kStrategies) || found->make.period == 0) return 1;
  return config.period > 0 ? config.period : found->make.period;
}

bool is_alone(const std::string& name) {
  const auto found = std::ranges::find(kStrategies, name, &Entry<StrategyKind>::key);
  return found != std::end(kStrategies) && found->make.alone;
}

bool has_buckets(const std::string& name) { return find(strategies(), "strategy", name).make.buckets; }

bool makes_steps_together(const std::string& name) {
  return name == kAuto || name == kPlan || find(strategies(), "strategy", name).make.together;
}

bool keeps_step(const std::string& name) {
  const StrategyKind& kind = find(strategies(), "strategy", name).make;
  return kind.centralised() || !kind.asynchronous;
}

bool is_asynchronous(const std::string& name, const ps::PsConfig& ps) {
  const StrategyKind& kind = find(strategies(), "strategy", name).make;
  return kind.centralised() ? central::Settings{.ps = paired(name, ps)}.asynchronous() : kind.asynchronous;
}

ps::PsConfig paired(const std::string& name, ps::PsConfig ps) {
  const StrategyKind& kind = find(strategies(), "strategy", name).make;
  if (!kind.rule.empty()) ps.rule = kind.rule, ps.consistency = kind.consistency;
  return ps;
}

std::string resolve(const std::string& name, int workers) {
  if (name != kAuto && name != kPlan) return name;
  return workers > 1 ? kAllreduce : kSingle;
}

std::unique_ptr<step::Strategy> make_strategy(const StrategySettings& settings, const step::Context& context,
                                              const step::Resumed* resumed) {
  const StrategyKind& kind = find(strategies(), "strategy", settings.name).make;
  const auto& entries = context.model.arena().entries();
  if (const auto found = std::ranges::find_if(entries, &tensor::Entry::is_private); found != entries.end() && !kind.together)
    throw ConfigError(
        fmt::format("'{}' is spread over the workers, which make every step together then; use strategy.name=allreduce", found->name));
  if (!kind.centralised()) {
    auto made = kind.make(settings, context);
    if (resumed) resumed->give_to([&](auto state) { made->load(state); });
    return made;
  }
  central::Settings servers = settings.servers;
  servers.strategy = settings.name, servers.ps = paired(settings.name, servers.ps);
  return central::make_central(context, servers, resumed);
}

void StrategyConfig::describe(Section& section) {
  std::vector<std::string_view> keys = {kAuto, kPlan};
  for (const auto& entry : strategies()) keys.push_back(entry.key);
  section
      .field("name", name,
             "how workers train together; auto: allreduce with several workers, else single; plan: what `paceline plan` puts first for "
             "these workers, mesh and micro-batches included")
      .one_of(keys);
  section
      .field("bucket_mb", bucket_mb,
             "MiB of gradients that are sent together; 0: chosen by measurement on the CPU, uncompressed, with two workers or "
             "train.repeatable=false; else 8, on a GPU all")
      .at_least(0);
  section.field("overlap", overlap, "send gradients while the backward pass continues").one_of({"auto", "on", "off"});
  section.field("update", update, "every worker updates all parameters, or (as parallel.zero=1) a part of them that it sends to the others")
      .one_of({"auto", "whole", "sharded"});
  section.field("batch_norm", batch_norm, "statistics of a worker's share, or of the whole batch").one_of({"local", "sync"});
  section
      .field("statistics", statistics, "running statistics that are evaluated and saved: the mean of all workers', or the first worker's")
      .one_of({"mean", "first"});
  section.field("period", period, "local_sgd, sparknet, easgd, diloco: steps between two meetings; 0: 8, for diloco 500").at_least(0);
  section.field("post_local_epoch", post_local_epoch, "local_sgd: meet at every step before this epoch").at_least(0);
  section.field("elasticity", elasticity, "easgd: how strongly workers and centre attract each other; 0: 0.9 / workers").at_least(0);
  section.field("outer_rate", outer_rate, "diloco: learning rate of the outer step, which the workers make together").above(0);
  section.field("outer_momentum", outer_momentum, "diloco: momentum of the outer step").at_least(0);
  section.field("staleness", staleness, "stale_sync: steps by which gradients are late").at_least(0);
  section
      .field("graph", graph,
             "sgp: workers push along an exponential graph, or each to a random other one, so that some get more than others")
      .one_of({"exponential", "random"});
}

}  // namespace paceline::strategies
