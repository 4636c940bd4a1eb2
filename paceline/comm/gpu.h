// The few GPU operations that communicators need. In a build without CUDA they do nothing, and available() returns false.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "paceline/comm/dtype.h"

namespace paceline::comm::gpu {

inline constexpr int kMostRanks = 16;  // that may share one GPU

bool available();
/// Blocks until everything on the stream is done. A stream is a cudaStream_t.
void synchronize(void* stream);
void copy(void* to, const void* from, std::int64_t bytes, void* stream);
/// A CUDA event: marks a position in a stream.
class Mark {
 public:
  Mark();
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void record(void* stream);
  /// Blocks until the stream has reached the last record().
  void wait() const;
  /// Makes later work on this stream wait for the last record(); the host does not wait.
  void hold(void* stream) const;

 private:
  void* event_ = nullptr;
};

/// A new stream on this thread's current GPU.
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

/// For its scope, makes the GPU that `data` lies on this thread's current one: threads start with GPU 0. Does nothing for other memory.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const void* data);
  ~OnDeviceOf();
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  int before_ = -1;
};

/// The GPU that memory lies on; for other memory, this thread's current GPU.
int device_of(const void* data);
/// From now on this thread's GPU can access memory that cudaMalloc allocated on the other one. ConfigError if it cannot.
void reach(int device);

/// What another process of this host needs to open a piece of GPU memory (CUDA IPC).
struct Card {
  std::int64_t process;  // 0: there is no memory
  void* address;         // in that process
  std::byte handle[64];
};
/// Zeroed memory on this thread's GPU that other processes can open by its card. ConfigError if there is no memory left, or no IPC.
std::shared_ptr<void> share(std::int64_t bytes, Card& card);
/// Opens another rank's memory. ConfigError if this thread's GPU cannot access it.
std::shared_ptr<void> open(const Card& card);

/// Like combine_all of reduce.h, with the same order and rounding, on the stream. All memory is on one device.
void combine_all(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out, std::int64_t count, int divisor,
                 void* stream);

}  // namespace paceline::comm::gpu
