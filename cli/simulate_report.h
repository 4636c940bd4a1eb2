// What `paceline simulate` found: as text, as JSON, as an SVG.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "paceline/sim/failures.h"
#include "paceline/sim/replay.h"

namespace paceline::cli {

/// One simulated job and everything that is reported about it.
struct Simulation {
  std::string network, cluster, strategy, jitter;
  schedule::ProgramSettings settings = {};
  sim::Replayed replayed = {};
  double modelled_s = 0;                // of a step, by closed forms: no jitter, no stragglers, no contention beyond the model's
  std::vector<std::string> notes = {};  // that the model made
  std::optional<sim::FailureSettings> failing = {};
  std::optional<sim::Survival> survival = {};
  double expected_share = 1;  // expected goodput, by Daly's model
  double simulated_in_s = 0;  // wall-clock time
};

/// The step time that the given share of all steps does not exceed.
double percentile(std::vector<double> steps, double share);

std::string simulation_text(const Simulation& simulation);
nlohmann::ordered_json simulation_json(const Simulation& simulation);
/// As SVG.
std::string simulation_picture(const Simulation& simulation);

}  // namespace paceline::cli
