// The steps of a parameter server's worker as programs (schedule/program.h): a visit to the server, or a part of the way between two.
#pragma once

#include <vector>

#include "paceline/schedule/program.h"

namespace paceline::strategies {

/// What a worker does in one step in addition to its passes. Under rules with a period, it pulls before the first step of a period and
/// pushes after the last (central/local_worker.h).
struct ServedStep {
  bool pulls = true, pushes = true;
  bool departs = false;  // every gradient changes the worker's own parameters, by its own optimizer or as the server's rule would
};

/// ConfigError if the mesh has more than a data axis.
std::vector<schedule::Program> served_step(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings,
                                           const ServedStep& step);

}  // namespace paceline::strategies
