// Steps of workers that meet every few steps: what one costs on average.
#pragma once

#include "paceline/perf/step_cost.h"

namespace paceline::perf {

/// The mean over a period of `steps`: one step with a meeting, the others without.
StepCost mean_over_period(const StepCost& meeting, const StepCost& alone, std::int64_t steps);

}  // namespace paceline::perf
