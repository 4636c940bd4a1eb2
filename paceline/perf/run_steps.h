// Measured steps of runs, kept in a file next to the cluster file. `paceline plan --probe-top` and `paceline profile --steps` add to it,
// and predictions of similar runs are corrected by the errors of these (train/step_correction.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::perf {

struct RunStep {
  std::string network, optimizer;
  std::optional<int> moments = {};  // fp32 tensors that the optimizer keeps: with momentum or without; empty: unknown, from an older file
  std::int64_t parameters = 0;      // networks with the same name may differ in width
  std::vector<std::string> way;     // other settings on which a step's time depends, in a fixed order: workers, strategy, mesh, …
  std::int64_t batch = 0;           // samples, all workers together
  double seconds = 0;
  bool operator==(const RunStep&) const = default;
  /// Whether it was updated in this way. What is unknown counts as equal.
  bool has_optimizer(const std::string& name, std::optional<int> kept) const {
    return optimizer == name && (!moments || !kept || *moments == *kept);
  }
};

/// For "cluster.toml" it is "cluster.steps.json" in the same folder; for the preset "h100", "h100.steps.json" in the working folder.
std::string steps_file(const std::string& cluster);
/// Empty if there is no such file. ConfigError with the file and the place of the error.
std::vector<RunStep> read_steps(const std::string& file);
/// Adds steps to the file; those of a run that was repeated are replaced.
void keep_steps(const std::string& file, const std::vector<RunStep>& fresh);

}  // namespace paceline::perf
