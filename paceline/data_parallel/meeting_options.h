// The settings of meetings (meeting.h), as a recipe and as replica.h name them.
#pragma once

#include <cstdint>

namespace paceline {
class Section;
}

namespace paceline::data_parallel {

struct LocalSgdOptions {
  std::int64_t period = 8;      // steps between two meetings
  double post_local_epoch = 0;  // before this epoch: meet at every step
  void describe(Section& section);
};

struct ElasticOptions {
  std::int64_t period = 8;
  double elasticity = 0;  // α; 0: 0.9 / workers
  void describe(Section& section);
};

struct DiLoCoOptions {
  std::int64_t period = 500;  // its momentum amplifies progress seven times, which suits few, long strides
  double outer_rate = 0.7, outer_momentum = 0.9;
  void describe(Section& section);
};

}  // namespace paceline::data_parallel
