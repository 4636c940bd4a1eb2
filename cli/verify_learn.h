// paceline verify --learn: stores the measured step times of runs next to the cluster's file.
#pragma once

#include <string>
#include <vector>

#include "paceline/observe/verification.h"

namespace paceline::cli {

/// Adds the steps of these runs to those from which predictions are corrected (train/step_correction.h). Returns the files that changed.
std::vector<std::string> learn_steps(const std::vector<observe::VerifiedRun>& runs);

}  // namespace paceline::cli
