// What a model, or a loss, sends to other ranks.
#pragma once

#include <cstdint>

namespace paceline::nn {

struct Traffic {
  double waited_s = 0, busy_s = 0;                // busy: something was in flight, whether a pass waited for it or not
  std::int64_t bytes_data = 0, bytes_tensor = 0;  // payload, along these axes of the mesh

  Traffic& operator+=(const Traffic& other) {
    waited_s += other.waited_s, busy_s += other.busy_s, bytes_data += other.bytes_data, bytes_tensor += other.bytes_tensor;
    return *this;
  }
};

}  // namespace paceline::nn
