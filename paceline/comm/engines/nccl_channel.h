// An NCCL communicator with all that its operations share: streams, the watchdog, and host memory on its way.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/engines/nccl_watchdog.h"

namespace paceline::comm::nccl {

/// Host memory on its way through the GPU. It is copied on a separate stream: a copy waits for the earlier work of its stream, and the
/// channel's stream may be waiting for a rank that never arrives.
class Staged {
 public:
  Staged(const Buffer& host, cudaStream_t copies) : host_(host), copies_(copies) {
    void* memory = nullptr;
    require(cudaMallocAsync(&memory, std::max<std::size_t>(bytes(), 1), copies));
    memory_ = Memory(memory, [copies](void* own) { cudaFreeAsync(own, copies); });
    copy(memory, host.data, cudaMemcpyHostToDevice);
  }

  Buffer on_gpu() const { return {memory_.get(), host_.count, host_.dtype, nullptr}; }
  void bring_back() const { copy(host_.data, memory_.get(), cudaMemcpyDeviceToHost); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(host_.bytes()); }
  void copy(void* to, const void* from, cudaMemcpyKind way) const {
    require(cudaMemcpyAsync(to, from, bytes(), way, copies_));
    require(cudaStreamSynchronize(copies_));
  }

  Buffer host_;
  cudaStream_t copies_;
  Memory memory_;
};

/// An NCCL communicator with its streams, shared by all its splits and works.
struct Channel {
  explicit Channel(ncclComm_t made) : communicator(made) {
    require(cudaGetDevice(&device));
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    require(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    watchdog = std::make_unique<Watchdog>(device, [this] { abort(); });
  }
  ~Channel() {
    if (broken) abort();
    watchdog.reset();
    if (!aborted) ncclCommDestroy(communicator);
    given_up.clear();
    cudaStreamDestroy(stream);
    cudaStreamDestroy(copies);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void give_up(std::vector<Staged>& staged) {
    const std::lock_guard lock(mutex);
    std::ranges::move(staged, std::back_inserter(given_up));
  }

  /// A call of NCCL that is on its way gets a moment to end. It may itself wait for the rank that is lost.
  void abort() {
    std::unique_lock lock(calls, std::defer_lock);
    static_cast<void>(lock.try_lock_for(std::chrono::seconds(1)));
    if (!aborted.exchange(true)) ncclCommAbort(communicator);
  }

  /// What NCCL has noticed by itself; nothing while another thread calls it.
  ncclResult_t async_error() {
    ncclResult_t state = ncclSuccess;
    const std::unique_lock lock(calls, std::try_to_lock);
    if (lock && !aborted) ncclCommGetAsyncError(communicator, &state);
    return state;
  }

  ncclComm_t communicator;
  int device = 0;
  cudaStream_t stream = nullptr, copies = nullptr;
  std::atomic<bool> broken = false, aborted = false;
  std::timed_mutex calls;  // of NCCL with the communicator
  std::unique_ptr<Watchdog> watchdog;
  std::mutex mutex;
  std::vector<Staged> given_up;  // NCCL may still write to these
};

}  // namespace paceline::comm::nccl
