// The settings of a parameter server and its workers: [ps] and [timing] of a recipe, and which of the processes this one is.
#pragma once

#include <string>

#include "paceline/ps/cluster.h"
#include "paceline/ps/config.h"
#include "paceline/ps/timing.h"

namespace paceline::central {

struct Settings {
  std::string strategy = "ps";  // its name, for messages
  ps::PsConfig ps = {};         // with the rule and the consistency that the name implies
  ps::TimingConfig timing = {};
  ps::Cluster cluster = {};  // ps.executor=processes
  std::string terms = {};    // what processes must agree on: "key=value" lines of the recipe
  int workers = 1;
  int threads = 0;  // of each worker; 0: usual_threads

  /// ConfigError if such a server is impossible; called before anything is created.
  void validate(const optim::OptimConfig& optim, const std::string& compression) const;
  /// Whether an update may miss a worker's gradient (ps::ConsistencyKind::synchronous).
  bool asynchronous() const;
  /// Whether updates use gradients that are older than the server's parameters.
  bool has_stale_gradients() const;
  /// The executor on a device. ConfigError if it does not support the settings.
  const ps::Executor& executor_on(bool gpu) const;
};

}  // namespace paceline::central
