// The kernel behind copy_together. No CUDA header here: a stream is the void* behind cudaStream_t.
#pragma once

#include <cstdint>

namespace paceline::tensor {

/// Passed to the kernel by value, so that a recorded launch needs no separate memory; hence the limit.
struct CopyTable {
  static constexpr int kMost = 128;
  struct {
    const void* values;
    float* place;
    int count;
    bool bf16;
  } copies[kMost];
  int count = 0;
};

void launch_copies(const CopyTable& table, bool add, void* stream);

}  // namespace paceline::tensor
