// [ps] of a recipe: the parameter server's update rule, and how it waits.
#pragma once

#include <chrono>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/optim/optimizer.h"
#include "paceline/ps/consistency.h"
#include "paceline/ps/executors.h"
#include "paceline/ps/predictors/predictor.h"
#include "paceline/ps/rules/outer.h"

namespace paceline::ps {

class UpdateRule;

struct PsConfig : ConsistencyConfig, PredictorConfig, OuterConfig {
  std::string executor = kAuto;     // threads, processes, virtual; auto: threads, on a GPU virtual
  std::string transport = "grpc";   // processes: grpc, mpi
  std::string rule = "asgd";        // strategy.name=ps: any rule …
  std::string consistency = "asp";  // … with any consistency
  std::int64_t servers = 1;         // that share the parameters
  std::string optimizer =
      "server";  // server, worker: which of them has momentum and other optimizer state; a worker then pushes steps instead of gradients
  std::string statistics = "async";       // of batch norms in evaluations: async, worker, recomputed
  double norm_share = 0.1;                // d of Async-BN
  std::string compensation = "adaptive";  // dc_asgd: constant, adaptive
  double dc_lambda = 0;                   // λ₀; 0: 0.04 (constant), 2 (adaptive)
  double dc_decay = 0.95;                 // m of the adaptive form
  std::string reading = "normalised";     // lc_asgd: what ∇(ℓ + λ ℓ_delay) means
  double lc_lambda = 1;
  double clip_low = 0.5, clip_high = 2;     // of the factor that a reading gives
  double gap_decay = 0.999;                 // gap_aware
  std::string gap_rate = "current";         // gap_aware: of the usual step: current, maximal
  double curvature_decay = 0.95;            // stability_cap: of its running means
  double stability_margin = 1;              // stability_cap: the largest rate, as a share of the limit
  double averaging = 0;                     // decay of the running mean of the parameters, which is evaluated; 0: the latest parameters are
  bool lock_free = false;                   // threads: updates without a lock (Hogwild)
  std::int64_t period = 1;                  // downpour, easgd, local steps: steps of a worker between two visits
  std::vector<double> speeds = {};          // by worker: slower ones make fewer steps between two visits (DyLU); empty: all the same
  double elasticity = 0;                    // easgd: α; 0: 0.9 / workers
  double deadline_s = 30;                   // for a late worker; twice as long for a lost server
  double snapshot_s = 60;                   // processes: between two snapshots of a server; 0: no snapshots
  bool replica = false;                     // processes: journal every push before it is acknowledged
  std::string certificate, key, authority;  // processes: PEM files; all three: mutual TLS
  bool allow_insecure = false;              // processes: plain text to other hosts

  void describe(Section& section);
  /// The row of ps.executor, or that of auto on a device. ConfigError if there is none.
  const Executor& executor_on(bool gpu) const;
  /// What the executor is, as far as that does not depend on the device: with auto, none of them.
  bool by_threads() const;
  bool by_processes() const;
  bool by_virtual_clock() const;
  bool leaves_executor_open() const { return executor == kAuto; }
  bool pushes_steps() const { return optimizer == "worker"; }
  Nanoseconds deadline() const { return std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(deadline_s)); }
  /// The deadline for a lost server, for an answer, and for any progress at all. It is longer than for a worker, because a lost worker must
  /// be detected first.
  Nanoseconds patience() const { return 2 * deadline(); }
};

/// A server's optimizer: that of the recipe or, if workers push steps, one that only subtracts them.
optim::OptimConfig server_optimizer(const PsConfig& config, const optim::OptimConfig& optim);

/// The steps of one worker between two visits, under a rule with that period. DyLU (Liu et al., arXiv 2401.09135) makes them proportional
/// to its speed, so that all workers visit equally often.
std::int64_t period_of(const PsConfig& config, std::int64_t period, int worker);

/// ConfigError if the rule needs gradients but would get steps that already contain momentum. `pushed` says what is pushed and why, `mend`
/// how to make it gradients.
void check_takes_steps(const std::string& name, const UpdateRule& rule, const std::string& pushed, const std::string& mend);

/// Checks combinations of fields, which no field can check by itself.
void validate(const PsConfig& config, const optim::OptimConfig& optim, int workers);

}  // namespace paceline::ps
