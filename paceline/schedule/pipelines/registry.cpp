#include "paceline/schedule/pipeline.h"

namespace paceline::schedule {

// Each is defined in the file of the same name.
PipelineSchedule gpipe();
PipelineSchedule one_forward_one_backward();
PipelineSchedule interleaved_1f1b();
PipelineSchedule zero_bubble();

std::span<const Entry<PipelineSchedule>> pipelines() {
  static const Entry<PipelineSchedule> table[] = {
      {"gpipe", "all micro-batches forward, then all backward; keeps the activations of all of them", gpipe()},
      {"1f1b", "one forward, one backward; gpipe's bubble, but activations of only as many micro-batches as stages",
       one_forward_one_backward()},
      {"interleaved_1f1b", "1f1b with several chunks of the model per rank; smaller bubble, more messages", interleaved_1f1b()},
      {"zero_bubble", "1f1b that computes weight gradients later, in its bubble (ZB-H1); the same activations", zero_bubble()},
  };
  return table;
}

}  // namespace paceline::schedule
