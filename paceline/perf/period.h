// The average cost of a step, for workers that meet every few steps.
#pragma once

#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// The mean over a period of `steps` steps, one of them with a meeting.
StepCost mean_over_period(const StepCost& meeting, const StepCost& alone, std::int64_t steps);

}  // namespace paceline::perf
