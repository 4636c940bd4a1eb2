#include "paceline/perf/step_time.h"

#include <algorithm>

namespace paceline::perf {

std::vector<LayerTime> layer_times(std::span<const LayerWork> work, const Roofline& roofline) {
  std::vector<LayerTime> times;
  for (const LayerWork& layer : work)
    times.push_back({layer.seconds(Phase::forward, roofline), layer.seconds(Phase::gradient, roofline),
                     layer.seconds(Phase::weights, roofline), layer.parameters});
  return times;
}

StepTime step_time(std::span<const LayerTime> layers, const Allreduce& allreduce, std::int64_t fused) {
  StepTime step;
  for (const LayerTime& layer : layers) step.compute += layer.forward;
  double sent = 0;  // when the last allreduce ends
  std::int64_t waiting = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const LayerTime& layer = layers[i];
    step.compute += layer.gradient + layer.weights;
    waiting += layer.parameters;
    if (waiting == 0 || (waiting < fused && i > 0)) continue;
    const double took = allreduce(waiting);
    step.communication += took;
    sent = std::max(sent, step.compute) + took;
    waiting = 0;
  }
  step.overlapped = std::max(step.compute, sent);
  return step;
}

}  // namespace paceline::perf
