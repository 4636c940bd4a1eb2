#include "paceline/tensor/stream_timer.h"

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>
#endif

namespace paceline::tensor {

#if PACELINE_WITH_CUDA

struct StreamTimer::State {
  struct Pair {
    at::cuda::CUDAEvent began{cudaEventDefault}, ended{cudaEventDefault};
  };
  std::deque<std::unique_ptr<Pair>> in_flight, idle;
  double seconds = 0;

  void read() {
    while (!in_flight.empty() && in_flight.front()->ended.isCreated() && in_flight.front()->ended.query()) {
      Pair& pair = *in_flight.front();
      seconds += pair.began.elapsed_time(pair.ended) * 1e-3;
      idle.push_back(std::move(in_flight.front()));
      in_flight.pop_front();
    }
  }
};

StreamTimer::StreamTimer(const c10::Device& device) {
  if (device.is_cuda()) state_ = std::make_unique<State>();
}

void StreamTimer::begin() {
  if (!state_) return;
  state_->read();  // so that there are no more events than steps in flight
  std::unique_ptr<State::Pair> pair;
  if (state_->idle.empty()) pair = std::make_unique<State::Pair>();
  else pair = std::move(state_->idle.front()), state_->idle.pop_front();
  pair->began.record();
  state_->in_flight.push_back(std::move(pair));
}

void StreamTimer::end() {
  if (state_) state_->in_flight.back()->ended.record();
}

double StreamTimer::seconds() const {
  if (!state_) return 0;
  state_->read();
  return state_->seconds;
}

/// An event that a graph sets in every replay; LibTorch's own would only order what is recorded.
class ReplayedEvent {
 public:
  ReplayedEvent() { C10_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~ReplayedEvent() { cudaEventDestroy(event_); }
  ReplayedEvent(const ReplayedEvent&) = delete;
  ReplayedEvent& operator=(const ReplayedEvent&) = delete;

  void record() { C10_CUDA_CHECK(cudaEventRecordWithFlags(event_, c10::cuda::getCurrentCUDAStream().stream(), cudaEventRecordExternal)); }
  /// Seconds from `earlier` to this one; nullopt if they were not replayed yet.
  std::optional<double> since(const ReplayedEvent& earlier) const {
    float milliseconds = 0;
    if (cudaEventElapsedTime(&milliseconds, earlier.event_, event_) == cudaSuccess) return milliseconds * 1e-3;
    static_cast<void>(cudaGetLastError());  // otherwise the next unrelated check would report it
    return std::nullopt;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct RecordedTimer::State {
  struct Part {
    ReplayedEvent began, ended;
  };
  std::vector<std::unique_ptr<Part>> parts;  // alive as long as the graph that sets their events
  std::size_t read = 0;
  double seconds = 0;
};

RecordedTimer::RecordedTimer() : state_(std::make_unique<State>()) {}
void RecordedTimer::begin() { state_->parts.emplace_back(std::make_unique<State::Part>())->began.record(); }
void RecordedTimer::end() { state_->parts.back()->ended.record(); }

double RecordedTimer::seconds() const {
  for (; state_->read < state_->parts.size(); ++state_->read) {
    const State::Part& part = *state_->parts[state_->read];
    const auto seconds = part.ended.since(part.began);
    if (!seconds) break;
    state_->seconds += *seconds;
  }
  return state_->seconds;
}

#else

struct RecordedTimer::State {};
RecordedTimer::RecordedTimer() = default;
void RecordedTimer::begin() {}
void RecordedTimer::end() {}
double RecordedTimer::seconds() const { return 0; }

struct StreamTimer::State {};
StreamTimer::StreamTimer(const c10::Device&) {}
void StreamTimer::begin() {}
void StreamTimer::end() {}
double StreamTimer::seconds() const { return 0; }

#endif

StreamTimer::~StreamTimer() = default;
RecordedTimer::~RecordedTimer() = default;

}  // namespace paceline::tensor
