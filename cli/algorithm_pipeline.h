// Pipeline schedules in `paceline algorithm`.
#pragma once

#include <string>
#include <vector>

namespace paceline::cli {

struct PipelineFlags {
  int stages = 4, micro_batches = 8, chunks = 0;  // chunks 0: 2 where the schedule interleaves, otherwise 1
  std::vector<double> costs = {1, 1, 1};          // forward, input gradients, weight gradients
  double transfer = 0;
};

/// Prints when each stage computes what; draws it as an SVG if `svg` names a file.
int show_pipeline(const std::string& key, const PipelineFlags& flags, const std::string& svg, bool json);
/// One row per schedule with its bubble, for the list of all algorithms.
std::string list_pipelines(const PipelineFlags& flags);

}  // namespace paceline::cli
