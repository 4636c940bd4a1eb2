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

/// Where a run will be, as far as its choices depend on it.
struct RunPlace {
  int hosts = 1;              // along the data axis
  int all_hosts = 1;          // of the run
  bool shares_memory = true;  // ranks of a host, as all engines but gloo have it
};

/// The most parameters for which a compressor's rounds are made and counted; for larger networks this many stand for all.
inline constexpr std::int64_t kMostCoded = 1 << 26;

/// The most bytes of a code of such a range, those of all rounds together.
std::int64_t code_bytes(const compress::Compressor& compressor, const compress::CompressConfig& config,
                        const compress::RangeLayout& layout);

/// What the strategy's choices depend on, as far as is known without the network.
strategies::AllreduceFacts facts_of(const Recipe& recipe, int workers, const RunPlace& place);

struct RecipeStep {
  std::string strategy;     // key
  std::int64_t period = 1;  // steps from one meeting of the workers, or from one visit of a worker to the server, to the next
  bool served = false;      // there is a parameter server
  bool departs = false;     // its workers change their own parameters meanwhile
  schedule::ProgramModel model;
  /// One for each bucket plan that the run tries before it keeps the fastest; usually one.
  std::vector<schedule::ProgramSettings> settings;

  /// Of a step with a meeting: one for each rank of the pipeline. A server's worker pulls and pushes in it.
  std::vector<schedule::Program> programs(const schedule::ProgramSettings& chosen) const;
  /// For a step between two meetings, if the period is above 1.
  std::vector<schedule::Program> programs_between(const schedule::ProgramSettings& chosen) const;
  /// Of a server's worker with a period above 1: the step before which it pulls, and the one behind which it pushes.
  std::vector<schedule::Program> opening(const schedule::ProgramSettings& chosen) const;
  std::vector<schedule::Program> closing(const schedule::ProgramSettings& chosen) const;
};

/// The number of workers is set in `recipe` (resolve_for). `stages`: by virtual stage; if empty, they are cut by counted costs. ConfigError
/// if such a run would be refused.
RecipeStep step_of(const Recipe& recipe, const graph::Graph& graph, const RunPlace& place = {},
                   const std::vector<graph::Units>& stages = {});

}  // namespace paceline::train
