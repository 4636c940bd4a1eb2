// The steps of a parameter server's worker as programs (schedule/program.h): a visit to the server, or a part of the way between two.
#pragma once

#include <vector>

#include "paceline/schedule/program.h"

namespace paceline::strategies {

/// What a worker does in one step beside its passes. Under rules with a period it pulls before the first step of one and pushes behind the
/// last (central/local_worker.h).
struct ServedStep {
  bool pulls = true, pushes = true;
  bool departs = false;  // it changes its parameters by every gradient, with an optimizer of its own or as the server would
};

/// ConfigError if the mesh has more than a data axis.
std::vector<schedule::Program> served_step(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings,
                                           const ServedStep& step);

}  // namespace paceline::strategies
