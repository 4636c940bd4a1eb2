// Steps of plans that were run (`paceline plan --probe-top`), kept in a file beside the cluster's for later plans: measured plans are
// ranked by the clock, and others are corrected by what the measured ones were off.
#pragma once

#include "paceline/perf/plan.h"

namespace paceline::perf {

/// One plan that was run.
struct PlanStep {
  std::string question;               // what else a step depends on: network, parameters, batch, workers, precision, optimizer
  std::vector<std::string> settings;  // settings_of() its choice
  double predicted_s = 0, measured_s = 0;
  bool operator==(const PlanStep&) const = default;
};

std::string question_text(const PlanQuestion& question);

/// "cluster.toml" has "cluster.steps.json" beside it, and the preset "h100" "h100.steps.json" in the working folder.
std::string steps_file(const std::string& cluster);
/// Empty where there is no such file. ConfigError with the file and the place of what is wrong in it.
std::vector<PlanStep> read_steps(const std::string& file);
/// Adds to the file; a plan that was run again is replaced.
void keep_steps(const std::string& file, const std::vector<PlanStep>& fresh);

/// Fills in Plan::measured_s and ranks the exact plans anew: by the clock where one was run, else by its prediction times the mean factor
/// by which those of the same question were off.
void apply_steps(Plans& plans, const PlanQuestion& question, const std::vector<PlanStep>& steps);

}  // namespace paceline::perf
