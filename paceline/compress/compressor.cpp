#include "paceline/compress/compressor.h"

#include <algorithm>

namespace paceline::compress {

void CompressConfig::describe(Section& section) {
  section.field("feedback", feedback, "keep what was not sent and add it to the next gradient; auto: where it helps")
      .one_of({"auto", "on", "off"});
  section.field("block", block, "int8, dynamic8: values that share a scale").at_least(1).at_most(1 << 20);
  section.field("density", density, "topk, dgc: share of the values that is sent (dgc: after its warm-up); 0: 1%, for dgc 0.1%")
      .at_least(0)
      .at_most(1);
  section.field("warmup_epochs", warmup_epochs, "dgc: epochs over which the density falls from 25%, geometrically").at_least(0);
  section.field("threshold", threshold, "threshold: τ, the magnitude above which a value is sent, as ±τ").above(0);
  section.field("sign_scale", sign_scale, "sign: magnitude of a vote; 0: the mean magnitude of the tensor").at_least(0);
  section.field("clip_deviations", clip_deviations, "ternary: clip at this many standard deviations; 0: no clipping").at_least(0);
  section
      .field("dgc_clip", dgc_clip,
             "dgc: clip a worker's gradient to this norm / √workers, and each bucket or server's range to its share of it; 0: no clipping")
      .at_least(0);
  section.field("rank", rank, "powersgd: columns of the two factors of a matrix").at_least(1).at_most(1024);
}

std::int64_t RangeLayout::elements() const {
  std::int64_t total = 0;
  for (const Part& part : parts) total += part.count;
  return total;
}

RangeLayout RangeLayout::slice(std::int64_t begin, std::int64_t end) const {
  RangeLayout slice{.parts = {}, .length = end - begin};
  for (const Part& part : parts) {
    const std::int64_t from = std::max(part.offset, begin), to = std::min(part.offset + part.count, end);
    if (from >= to) continue;
    const bool whole = to - from == part.count;
    slice.parts.push_back(
        {.offset = from - begin, .count = to - from, .rows = whole ? part.rows : 1, .columns = whole ? part.columns : to - from});
  }
  return slice;
}

}  // namespace paceline::compress
