// One step of data parallelism: the passes one after the other, and the gradients' allreduces behind them or beside them.
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
  double overlapped = 0;  // with the allreduces beside the backward pass
  double sequential() const { return compute + communication; }
};

/// Seconds of an allreduce of this many elements.
using Allreduce = std::function<double(std::int64_t elements)>;

/// t = Σ FP; for l = L..1: t += GC_l + WU_l, and as soon as `fused` elements have come together (0: after each layer) their allreduce
/// begins, behind the one before it: c = max(c, t) + AR. The step ends with the later of both.
StepTime step_time(std::span<const LayerTime> layers, const Allreduce& allreduce, std::int64_t fused = 0);

}  // namespace paceline::perf
