#include "paceline/perf/period.h"

namespace paceline::perf {
namespace {

ByAxis by_axis(const ByAxis& meeting, const ByAxis& alone, double share) {
  ByAxis made;
  for (std::size_t axis = 0; axis < kProgramAxes; ++axis) made.of[axis] = share * meeting.of[axis] + (1 - share) * alone.of[axis];
  return made;
}

Split split_over(const Split& meeting, const Split& alone, double share) {
  Split made;
  for (double Split::*part : {&Split::compute, &Split::optimizer, &Split::encoding, &Split::bubble, &Split::straggling})
    made.*part = share * meeting.*part + (1 - share) * alone.*part;
  made.exposed = by_axis(meeting.exposed, alone.exposed, share);
  return made;
}

}  // namespace

StepCost mean_over_period(const StepCost& meeting, const StepCost& alone, std::int64_t steps) {
  if (steps <= 1) return meeting;
  const double share = 1 / static_cast<double>(steps);
  StepCost made = meeting;
  for (double StepCost::*value : {&StepCost::seconds, &StepCost::low, &StepCost::high})
    made.*value = share * meeting.*value + (1 - share) * alone.*value;
  made.split = split_over(meeting.split, alone.split, share);
  made.bottleneck = made.split.exposed.sum() > made.split.compute ? meeting.bottleneck : alone.bottleneck;
  made.communication = by_axis(meeting.communication, alone.communication, share);
  made.bytes = by_axis(meeting.bytes, alone.bytes, share);
  for (std::size_t i = 0; i < made.stages.size() && i < alone.stages.size(); ++i)
    made.stages[i] = {.split = split_over(meeting.stages[i].split, alone.stages[i].split, share),
                      .communication = by_axis(meeting.stages[i].communication, alone.stages[i].communication, share),
                      .bytes = by_axis(meeting.stages[i].bytes, alone.stages[i].bytes, share)};
  made.steps_per_s = meeting.steps_per_s * meeting.seconds / made.seconds;
  return made;
}

}  // namespace paceline::perf
