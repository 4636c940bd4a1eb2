// A pipeline schedule as a picture: stages below each other, time to the right, every step a box. A self-contained SVG that reads on light
// and on dark ground.
#pragma once

#include <string>

#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {

/// ConfigError for a problem that cannot be, and for a picture that nobody could read: stages · micro-batches · chunks is at most 2048.
std::string pipeline_picture(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, const PipelineCosts& costs,
                             double transfer = 0);

}  // namespace paceline::schedule
