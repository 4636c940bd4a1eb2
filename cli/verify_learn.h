// paceline verify --learn: what runs took is kept beside the cluster's file.
#pragma once

#include <string>
#include <vector>

#include "paceline/observe/verification.h"

namespace paceline::cli {

/// Adds the steps of these runs to those that correct predictions (train/step_correction.h). The files that they were added to.
std::vector<std::string> learn_steps(const std::vector<observe::VerifiedRun>& runs);

}  // namespace paceline::cli
