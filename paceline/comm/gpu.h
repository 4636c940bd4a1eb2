// The few things that communicators do with memory of a GPU. Without CUDA in the build they are not there, and available() says so.
#pragma once

#include <span>

#include "paceline/comm/dtype.h"

namespace paceline::comm::gpu {

inline constexpr int kMostRanks = 16;  // that share one GPU

bool available();
/// Until all that was put on the stream is done. A stream is a cudaStream_t.
void synchronize(void* stream);
void copy(void* to, const void* from, std::int64_t bytes, void* stream);
/// A place in a stream: what was put there before it.
class Mark {
 public:
  Mark();
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void record(void* stream);
  /// Until the stream has come to the last record().
  void wait() const;

 private:
  void* event_ = nullptr;
};

/// As combine_all of reduce.h, with the same order and the same rounding, on the stream. All memory on one device.
void combine_all(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out, std::int64_t count, int divisor,
                 void* stream);

}  // namespace paceline::comm::gpu
