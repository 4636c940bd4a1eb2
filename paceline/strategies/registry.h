// [strategy] of a recipe, and the table of all strategies: one row per strategy.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"
#include "paceline/central/settings.h"
#include "paceline/schedule/program.h"
#include "paceline/step/strategy.h"

namespace paceline::strategies {

/// strategy.name where a recipe does not say how: chosen by the number of workers, or by the planner (train/planned.h).
inline constexpr const char *kAuto = "auto", *kPlan = "plan";
/// The rows that `auto` stands for: with one worker, with several.
inline constexpr const char *kSingle = "single", *kAllreduce = "allreduce";

/// [strategy] of a recipe.
struct StrategyConfig {
  std::string name = kAuto;      // allreduce where there are several workers, else single; or plan (train/planned.h)
  double bucket_mb = 0;          // gradients that travel together; 0: chosen by measurement where that changes no bit
  std::string overlap = "auto";  // on, off, auto: send gradients while the backward pass continues
  std::string update = "auto";   // whole, sharded, auto: whether every worker updates all parameters, or a part that it sends to the others
  std::string batch_norm = "local";   // local, sync: statistics of a worker's share, or of the whole batch
  std::string statistics = "mean";    // mean, first: whose running statistics are evaluated and kept, where batch_norm is local
  std::int64_t period = 0;            // local_sgd, sparknet, easgd, diloco: steps between two meetings; 0: 8, of diloco 500
  double post_local_epoch = 0;        // local_sgd: meet at every step before this epoch
  double elasticity = 0;              // easgd: α; 0: 0.9 / workers
  double outer_rate = 0.7;            // diloco
  double outer_momentum = 0.9;        // diloco
  std::int64_t staleness = 1;         // stale_sync: steps by which gradients come late
  std::string graph = "exponential";  // sgp: exponential, random: to whom workers push
  void describe(Section& section);
};

/// One program for each rank of the pipeline: what the strategy's step does (schedule/program.h).
using StepPrograms = std::vector<schedule::Program> (*)(const schedule::ProgramModel&, const schedule::ProgramSettings&);

/// A strategy of this room, or one around a parameter server: a pair of an update rule and a consistency (ps/).
struct StrategyKind {
  std::unique_ptr<step::Strategy> (*make)(const StrategyConfig&, const step::Context&) = nullptr;
  StepPrograms program = nullptr;
  std::string_view rule = {}, consistency = {};  // empty: those of [ps]
  bool alone = false;                            // has one worker
  bool together = false;                         // workers make every step together: their model may be split
  bool buckets = false;            // gradients travel in buckets: what of them is left open, and who updates, allreduce_choices.h decides
  std::int64_t period = 0;         // they meet every so many steps, unless strategy.period says otherwise; 0: in every one. The
                                   // program is that of a step with a meeting
  bool asynchronous = false;       // no worker waits for the others; where there is a server, its consistency says that
  std::string_view gives_up = {};  // beside one worker with the whole batch; the planner shows strategies that say it

  bool centralised() const { return make == nullptr; }
};
std::span<const Entry<StrategyKind>> strategies();

/// The strategy of that key; "auto" is none until resolve() has made it one. `servers`: of strategies that have a parameter server.
/// ConfigError if it is impossible.
std::unique_ptr<step::Strategy> make_strategy(const StrategyConfig& config, const step::Context& context,
                                              const central::Settings& servers = {});
/// The key that "auto" stands for, and "plan" before a plan was made.
std::string resolve(const std::string& name, int workers);
/// Whether the strategy has a parameter server, and runs all workers of a run by itself. "auto" has none.
bool is_centralised(const std::string& name);
/// Steps from one meeting of the workers to the next; 1 where they meet in every step, or never.
std::int64_t period_of(const StrategyConfig& config);
/// Whether it has one worker, and whether its gradients travel in buckets. "auto" and "plan" must be resolved for the latter.
bool is_alone(const std::string& name);
bool has_buckets(const std::string& name);
/// Whether workers make every step together. "auto" and "plan" choose a strategy of which they do.
bool makes_steps_together(const std::string& name);
/// Whether trainers that each play one worker are at the same step, so that they can exchange something after it. Of strategies that play
/// all workers there is one trainer.
bool keeps_step(const std::string& name);
/// Whether workers go on without waiting for all others: as the strategy's row says, or the consistency of its server. "auto" and "plan"
/// must be resolved.
bool is_asynchronous(const std::string& name, const ps::PsConfig& ps);
/// [ps] with the rule and the consistency that the strategy's name stands for.
ps::PsConfig paired(const std::string& name, ps::PsConfig ps);

}  // namespace paceline::strategies
