#if PACELINE_WITH_NCCL

#include "paceline/comm/engines/nccl_watchdog.h"

#include <chrono>
#include <utility>

namespace paceline::comm::nccl {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};

bool has_happened(const Event& event) {
  const cudaError_t state = cudaEventQuery(event.get());
  if (state == cudaErrorNotReady) return false;
  require(state);
  return true;
}

}  // namespace

Watchdog::Watchdog(int device, std::function<void()> abort) : device_(device), abort_(std::move(abort)) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch(Watched operation) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return watched_.size() < kMostInFlight || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  watched_.push_back(std::move(operation));
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
}

void Watchdog::rethrow() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void Watchdog::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return watched_.empty() || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Watchdog::loop() {
  const OnDevice on(device_);
  auto mode = cudaStreamCaptureModeRelaxed;  // questions about events do not invalidate what other threads record
  require(cudaThreadExchangeStreamCaptureMode(&mode));
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !watched_.empty(); });
    if (watched_.empty()) return;
    const Watched& first = watched_.front();  // others only add to the end
    lock.unlock();
    std::exception_ptr problem;
    bool done = false;
    try {
      done = look(first);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (problem) {
      failure_ = problem;  // before the streams go on with whatever the buffers hold
      lock.unlock();
      changed_.notify_all();
      return abort_();
    }
    if (done) {
      watched_.pop_front();
      began_.reset();
      changed_.notify_all();
    } else {
      changed_.wait_for(lock, kBetweenLooks, [&] { return false; });
    }
  }
}

bool Watchdog::look(const Watched& first) {
  if (has_happened(*first.done)) return true;
  const Nanoseconds now = SteadyClock().now();
  if (!began_ && has_happened(*first.ready)) began_ = now;
  if (began_) first.check(now - *began_);
  return false;
}

}  // namespace paceline::comm::nccl

#endif
