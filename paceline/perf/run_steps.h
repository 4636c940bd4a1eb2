// Steps of runs by the clock, kept in a file beside the cluster's. `paceline plan --probe-top` and `paceline profile --steps` add to it,
// and predictions of such runs are corrected by what theirs were off (train/step_correction.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::perf {

struct RunStep {
  std::string network, optimizer;
  std::int64_t parameters = 0;   // two networks of one name may differ in width
  std::vector<std::string> way;  // what else its recipe says that a step's time depends on, in a fixed order: workers, strategy, mesh, …
  std::int64_t batch = 0;        // samples, all workers together
  double seconds = 0;
  bool operator==(const RunStep&) const = default;
};

/// "cluster.toml" has "cluster.steps.json" beside it, and the preset "h100" "h100.steps.json" in the working folder.
std::string steps_file(const std::string& cluster);
/// Empty if there is no such file. ConfigError with the file and the place of what is wrong in it.
std::vector<RunStep> read_steps(const std::string& file);
/// Adds to the file; what was run again is replaced.
void keep_steps(const std::string& file, const std::vector<RunStep>& fresh);

}  // namespace paceline::perf
