// The few things that communicators do with memory of a GPU. Without CUDA in the build they are not there, and available() says so.
#pragma once

#include <cstddef>
#include <memory>
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
  /// What is put on this stream from now on waits for the last record(), and the host does not.
  void hold(void* stream) const;

 private:
  void* event_ = nullptr;
};

/// A stream of its own, on the GPU that this thread speaks to.
class Queue {
 public:
  Queue();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  void* stream() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

/// While it lives, this thread speaks to the GPU that `data` lies on: threads begin with the first. Other memory changes nothing.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const void* data);
  ~OnDeviceOf();
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  int before_ = -1;
};

/// The GPU that memory lies on; for other memory, the one that this thread speaks to.
int device_of(const void* data);
/// From now on this thread's GPU reads and writes memory of that one, as cudaMalloc gives it. ConfigError if it cannot.
void reach(int device);

/// How another process of this host reaches a piece of GPU memory (CUDA IPC).
struct Card {
  std::int64_t process;  // 0: no memory
  void* address;         // in that process
  std::byte handle[64];
};
/// Zeroed memory of this thread's GPU that other processes can open by its card. ConfigError if there is no memory left, or no IPC.
std::shared_ptr<void> share(std::int64_t bytes, Card& card);
/// Another rank's memory. ConfigError if this thread's GPU cannot read it.
std::shared_ptr<void> open(const Card& card);

/// As combine_all of reduce.h, with the same order and the same rounding, on the stream. All memory on one device.
void combine_all(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out, std::int64_t count, int divisor,
                 void* stream);

}  // namespace paceline::comm::gpu
