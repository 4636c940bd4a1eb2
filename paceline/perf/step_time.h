// One data-parallel step: the passes, and the allreduces of the gradients after or during the backward pass.
#pragma once

#include <functional>
#include <span>

#include "paceline/perf/roofline.h"

namespace paceline::perf {

struct LayerTime {
  double forward = 0, gradient = 0, weights = 0;
  std::int64_t parameters = 0;
};
std::vector<LayerTime> layer_times(std::span<const LayerWork> work, const Roofline& roofline);

struct StepTime {
  double compute = 0, communication = 0;
  double overlapped = 0;  // with the allreduces during the backward pass
  double sequential() const { return compute + communication; }
};

/// Seconds of an allreduce of this many elements.
using Allreduce = std::function<double(std::int64_t elements)>;

/// t = Σ FP; for l = L..1: t += GC_l + WU_l, and as soon as there are `fused` elements (0: after each layer), their allreduce begins after
/// the previous one: c = max(c, t) + AR. The step ends at the later of t and c.
StepTime step_time(std::span<const LayerTime> layers, const Allreduce& allreduce, std::int64_t fused = 0);

}  // namespace paceline::perf
