// The settings from which a recipe's step programs are made (schedule/program.h), with the same choices as a run: mesh, stages, buckets,
// sharded updates, compression. Only for networks that Paceline builds; the units of a user's module are unknown before it is created.
#pragma once

#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/graph/stages.h"
#include "paceline/schedule/program.h"
#include "paceline/strategies/allreduce_choices.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

/// The placement of a run, as far as its choices depend on it.
struct RunPlace {
  int hosts = 1;              // along the data axis
  int all_hosts = 1;          // of the run
  bool shares_memory = true;  // ranks of a host share memory, as with all engines except gloo
};

/// The largest number of parameters for which a compressor's rounds are created and counted; larger networks are extrapolated from this
/// number.
inline constexpr std::int64_t kMostCoded = 1 << 26;

/// The maximum size of a code of such a range in bytes, all rounds together.
std::int64_t code_bytes(const compress::Compressor& compressor, const compress::CompressConfig& config,
                        const compress::RangeLayout& layout);

/// How many moments of a parameter the optimizer keeps.
int moments_of(const optim::OptimConfig& optimizer);

/// The facts on which the strategy's choices depend, as far as they are known without the network.
strategies::AllreduceFacts facts_of(const Recipe& recipe, int workers, const RunPlace& place);

struct RecipeStep {
  std::string strategy;     // key
  std::int64_t period = 1;  // steps from one meeting of the workers, or from one visit of a worker to the server, to the next
  bool served = false;      // there is a parameter server
  bool departs = false;     // its workers change their own parameters meanwhile
  schedule::ProgramModel model;
  /// One for each bucket plan that the run tries before it keeps the fastest; usually one.
  std::vector<schedule::ProgramSettings> settings;

  /// The programs of a step with a meeting, one for each rank of the pipeline. The worker of a parameter server pulls and pushes in it.
  std::vector<schedule::Program> programs(const schedule::ProgramSettings& chosen) const;
  /// The programs of a step between two meetings, if the period is above 1.
  std::vector<schedule::Program> programs_between(const schedule::ProgramSettings& chosen) const;
  /// For the worker of a parameter server with a period above 1: the step before which it pulls, and the one after which it pushes.
  std::vector<schedule::Program> opening(const schedule::ProgramSettings& chosen) const;
  std::vector<schedule::Program> closing(const schedule::ProgramSettings& chosen) const;
};

/// The number of workers is set in `recipe` (resolve_for). `stages`: by virtual stage; if empty, they are cut by counted costs. ConfigError
/// if such a run would be refused.
RecipeStep step_of(const Recipe& recipe, const graph::Graph& graph, const RunPlace& place = {},
                   const std::vector<graph::Units>& stages = {});

}  // namespace paceline::train
