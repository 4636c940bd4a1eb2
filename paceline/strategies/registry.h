// [strategy] of a recipe, and the table of all strategies: one row per strategy.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"
#include "paceline/central/settings.h"
#include "paceline/schedule/program.h"
#include "paceline/step/strategy.h"

namespace paceline::strategies {

/// strategy.name if a recipe does not set it: chosen by the number of workers, or by the planner (train/planned.h).
inline constexpr const char *kAuto = "auto", *kPlan = "plan";
/// The rows that `auto` resolves to: with one worker, with several.
inline constexpr const char *kSingle = "single", *kAllreduce = "allreduce";

/// [strategy] of a recipe.
struct StrategyConfig {
  std::string name = kAuto;      // allreduce with several workers, otherwise single; or plan (train/planned.h)
  double bucket_mb = 0;          // gradients that are sent together; 0: chosen by measurement if that changes no bit
  std::string overlap = "auto";  // on, off, auto: send gradients while the backward pass continues
  std::string update = "auto";   // whole, sharded, auto: whether every worker updates all parameters, or a part that it sends to the others
  std::string batch_norm = "local";   // local, sync: statistics of a worker's share, or of the whole batch
  std::string statistics = "mean";    // mean, first: which worker's running statistics are evaluated and saved, if batch_norm is local
  std::int64_t period = 0;            // local_sgd, sparknet, easgd, diloco: steps between two meetings; 0: 8, for diloco 500
  double post_local_epoch = 0;        // local_sgd: meet at every step before this epoch
  double elasticity = 0;              // easgd: α; 0: 0.9 / workers
  double outer_rate = 0.7;            // diloco
  double outer_momentum = 0.9;        // diloco
  std::int64_t staleness = 1;         // stale_sync: how many steps late gradients are applied
  std::string graph = "exponential";  // sgp: exponential, random: which neighbour a worker pushes to
  void describe(Section& section);
};

/// What `allreduce` alone reads of other sections.
struct AllreduceSettings {
  int zero = 0;                    // ZeRO's stage
  bool bf16_gradients = false;     // gradients travel in bf16 and are added in fp32
  std::string algorithm = "auto";  // of the collectives
  bool shaped = false;             // the links between workers are slowed down artificially
};

/// The settings from which a strategy is made, in addition to the context.
struct StrategySettings : StrategyConfig {
  AllreduceSettings allreduce = {};
  central::Settings servers = {};  // for strategies with a parameter server
};

/// One program for each rank of the pipeline, describing the strategy's step (schedule/program.h).
using StepPrograms = std::vector<schedule::Program> (*)(const schedule::ProgramModel&, const schedule::ProgramSettings&);

/// A strategy of this room, or one around a parameter server: a pair of an update rule and a consistency (ps/).
struct StrategyKind {
  std::unique_ptr<step::Strategy> (*make)(const StrategySettings&, const step::Context&) = nullptr;
  StepPrograms program = nullptr;
  std::string_view rule = {}, consistency = {};  // empty: those of [ps]
  bool alone = false;                            // for a single worker
  bool together = false;                         // workers make every step together, so their model may be split
  bool buckets = false;       // gradients are sent in buckets; allreduce_choices.h decides the settings that a recipe leaves open
  std::int64_t period = 0;    // steps between two meetings, unless strategy.period is set; 0: workers meet in every step. The
                              // program is that of a step with a meeting
  bool asynchronous = false;  // workers do not wait for each other; with a server, its consistency decides that
  /// The setting with which several workers compute the same as one with the whole batch; "" if they always do. {workers} stands for the
  /// number of workers.
  std::optional<std::string_view> synchronous_with = {};
  std::string_view gives_up =
      {};  // compared with one worker and the whole batch; the planner lists strategies that give up something separately

  bool centralised() const { return make == nullptr; }
};
std::span<const Entry<StrategyKind>> strategies();

/// The strategy of that name; "auto" must have been resolved by resolve(). In a resumed run the module has been loaded. ConfigError if it
/// is impossible, or if it cannot continue from what was saved.
std::unique_ptr<step::Strategy> make_strategy(const StrategySettings& settings, const step::Context& context,
                                              const step::Resumed* resumed = nullptr);
/// The key that "auto" resolves to; also for "plan" before a plan was made.
std::string resolve(const std::string& name, int workers);
/// Whether the strategy has a parameter server, and runs all workers of a run by itself. False for "auto".
bool is_centralised(const std::string& name);
/// Steps from one meeting of the workers to the next; 1 if they meet in every step, or never.
std::int64_t period_of(const StrategyConfig& config);
/// Whether it has a single worker, and whether its gradients are sent in buckets. For the latter, "auto" and "plan" must be resolved.
bool is_alone(const std::string& name);
bool has_buckets(const std::string& name);
/// Whether workers make every step together. True for "auto" and "plan", which only choose such strategies.
bool makes_steps_together(const std::string& name);
/// Whether trainers with one worker each are always at the same step, so that they can exchange something after it. A strategy that runs
/// all workers has only one trainer.
bool keeps_step(const std::string& name);
/// Whether workers continue without waiting for all others, according to the strategy's row or its server's consistency. "auto" and "plan"
/// must be resolved.
bool is_asynchronous(const std::string& name, const ps::PsConfig& ps);
/// [ps] with the rule and the consistency that the strategy's name implies.
ps::PsConfig paired(const std::string& name, ps::PsConfig ps);

}  // namespace paceline::strategies
