// What `paceline simulate` found: as text, as JSON, as a picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "paceline/sim/failures.h"
#include "paceline/sim/replay.h"

namespace paceline::cli {

/// One simulated job and all that is said of it.
struct Simulation {
  std::string network, cluster, strategy, jitter;
  schedule::ProgramSettings settings = {};
  sim::Replayed replayed = {};
  double modelled_s = 0;                // a step by the closed forms: no jitter, nothing slow, no contention but that of the model
  std::vector<std::string> notes = {};  // of the model
  std::optional<sim::FailureSettings> failing = {};
  std::optional<sim::Survival> survival = {};
  double expected_share = 1;  // of goodput, by Daly's model
  double simulated_in_s = 0;  // by the clock on the wall
};

/// The step that a share of all steps do not exceed.
double percentile(std::vector<double> steps, double share);

std::string simulation_text(const Simulation& simulation);
nlohmann::ordered_json simulation_json(const Simulation& simulation);
/// SVG.
std::string simulation_picture(const Simulation& simulation);

}  // namespace paceline::cli
