// Draws a pipeline schedule: stages from top to bottom, time to the right, every step as a box. A self-contained SVG for light and dark
// backgrounds.
#pragma once

#include <string>

#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {

/// ConfigError for an impossible problem, and for an illegibly large drawing: stages · micro-batches · chunks is at most 2048.
std::string pipeline_drawing(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, const PipelineCosts& costs,
                             double transfer = 0);

}  // namespace paceline::schedule
