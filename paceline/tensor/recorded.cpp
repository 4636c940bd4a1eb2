#include "paceline/tensor/recorded.h"

#include <algorithm>
#include <mutex>

#include "paceline/base/gpu_stream.h"

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace paceline::tensor {
namespace {

constexpr int kPlainRuns = 3;  // in which cuDNN chooses its algorithms and the allocator its sizes

/// Workers that share a GPU are threads, and LibTorch registers a recording with generators that they share: one begins or ends at a time.
std::mutex& recording() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

std::unique_lock<std::mutex> without_recordings() { return std::unique_lock(recording()); }

#if PACELINE_WITH_CUDA

struct Recorded::State {
  /// Points in a rank's stream.
  struct Marks {
    at::cuda::CUDAEvent ready, done;
  };

  at::cuda::CUDAGraph graph;                  // the first rank's
  std::vector<std::shared_ptr<Marks>> marks;  // by rank
};

namespace {

/// Streams that are not in use. LibTorch's own pool has 32 streams and hands them out in turn, used or not: work that one thread put on
/// such a stream would become part of what another thread is recording on it.
class FreeStreams {
 public:
  c10::cuda::CUDAStream take(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    const auto last = std::find_if(free_.rbegin(), free_.rend(), [&](const auto& stream) { return stream.device_index() == device; });
    if (last == free_.rend()) return make(device);
    const c10::cuda::CUDAStream found = *last;
    free_.erase(std::next(last).base());
    return found;
  }
  void give_back(const c10::cuda::CUDAStream& stream) {
    const std::lock_guard lock(mutex_);
    free_.push_back(stream);
  }

 private:
  static c10::cuda::CUDAStream make(c10::DeviceIndex device) {
    const c10::cuda::CUDAGuard there(device);
    cudaStream_t stream = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return c10::cuda::getStreamFromExternal(stream, device);
  }

  std::mutex mutex_;
  std::vector<c10::cuda::CUDAStream> free_;
};

/// Never destroyed: at the end of the program, the driver may be gone.
FreeStreams& free_streams() {
  static auto* streams = new FreeStreams;
  return *streams;
}

}  // namespace

struct OwnStream::State {
  explicit State(const c10::Device& device) : stream(free_streams().take(device.index())), guard(stream) {}
  ~State() { free_streams().give_back(stream); }
  c10::cuda::CUDAStream stream;
  c10::cuda::CUDAStreamGuard guard;
};

OwnStream::OwnStream(const c10::Device& device) {
  if (device.is_cuda()) state_ = std::make_unique<State>(device);
}

void* current_stream(const c10::Device& device) {
  return device.is_cuda() ? c10::cuda::getCurrentCUDAStream(device.index()).stream() : nullptr;
}

bool is_recording(const c10::Device& device) {
  auto status = cudaStreamCaptureStatusNone;
  if (device.is_cuda()) C10_CUDA_CHECK(cudaStreamIsCapturing(at::cuda::getCurrentCUDAStream(device.index()).stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

Recorded::Run Recorded::run(const std::function<void()>& work) {
  if (record_ && device_.is_cuda()) {
    agree();
    if (state_) {
      replay();
      return Run::replayed;
    }
    if (plain_runs_++ == kPlainRuns) {
      record(work);
      replay();  // recording does not execute anything: this is the actual run
      return Run::recorded;
    }
  }
  work();  // without the lock, since workers may have to meet in it
  return Run::called;
}

/// All ranks follow the one with the fewest runs since it discarded its recording.
void Recorded::agree() {
  if (company_.size == 1) return;
  const std::int64_t fewest = std::ranges::min(company_.tell(plain_runs_));
  if (fewest == plain_runs_) return;
  forget();
  plain_runs_ = static_cast<int>(fewest);
}

void Recorded::meet() const {
  if (company_.size > 1) company_.tell(0);
}

void Recorded::record(const std::function<void()>& work) {
  const auto stream = at::cuda::getCurrentCUDAStream(device_.index());
  auto state = std::make_unique<State>();
  auto own = std::make_shared<State::Marks>();
  state->marks.assign(static_cast<std::size_t>(company_.size), own);
  if (company_.size > 1) {
    const std::vector<std::int64_t> theirs = company_.tell(reinterpret_cast<std::int64_t>(&own));
    for (std::size_t i = 0; i < theirs.size(); ++i) state->marks[i] = *reinterpret_cast<const std::shared_ptr<State::Marks>*>(theirs[i]);
  }
  stream.synchronize();
  meet();  // all have copied the marks, and all streams are empty
  std::unique_lock lock(recording(), std::defer_lock);
  if (leads()) {
    lock.lock();
    // A recording has its own memory, which would double what the plain runs left in the allocator.
    c10::cuda::CUDACachingAllocator::emptyCache();
    state->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);  // does not affect other threads
    own->done.record(stream);
  }
  meet();
  if (!leads()) state->marks[0]->done.block(stream);  // a stream that waits for a recorded mark is recorded too
  work();
  if (!leads()) own->ready.record(stream);
  meet();
  if (leads()) {
    for (std::size_t i = 1; i < state->marks.size(); ++i) state->marks[i]->ready.block(stream);
    state->graph.capture_end();
  }
  meet();
  state_ = std::move(state);
}

void Recorded::replay() {
  if (company_.size == 1) return state_->graph.replay();
  const auto stream = at::cuda::getCurrentCUDAStream(device_.index());
  const auto& marks = state_->marks;
  marks[static_cast<std::size_t>(company_.rank)]->ready.record(stream);
  meet();
  if (leads()) {
    for (std::size_t i = 1; i < marks.size(); ++i) marks[i]->ready.block(stream);
    state_->graph.replay();
    marks[0]->done.record(stream);
  }
  meet();
  if (!leads()) marks[0]->done.block(stream);
}

#else

struct Recorded::State {};
struct OwnStream::State {};

OwnStream::OwnStream(const c10::Device&) {}

void* current_stream(const c10::Device&) { return nullptr; }

bool is_recording(const c10::Device&) { return false; }

Recorded::Run Recorded::run(const std::function<void()>& work) {
  work();
  return Run::called;
}

#endif

Recorded::Recorded(const c10::Device& device, bool record, Company company)
    : device_(device), record_(record), company_(std::move(company)) {}
Recorded::~Recorded() { forget(); }
Recorded::Recorded(Recorded&&) noexcept = default;
Recorded& Recorded::operator=(Recorded&&) noexcept = default;

OwnStream::~OwnStream() = default;

void Recorded::forget() {
  if (state_) {
    const std::lock_guard lock(recording());
    state_.reset();
  }
  plain_runs_ = 0;
}

}  // namespace paceline::tensor

void* paceline::current_gpu_stream(int device) {
  return tensor::current_stream(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}
