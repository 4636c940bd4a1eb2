#include "paceline/tensor/stream_timer.h"

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAEvent.h>

#include <deque>
#include <utility>
#endif

namespace paceline::tensor {

#if PACELINE_WITH_CUDA

struct StreamTimer::State {
  struct Pair {
    at::cuda::CUDAEvent began{cudaEventDefault}, ended{cudaEventDefault};
  };
  std::deque<std::unique_ptr<Pair>> under_way, idle;
  double seconds = 0;

  void read() {
    while (!under_way.empty() && under_way.front()->ended.isCreated() && under_way.front()->ended.query()) {
      Pair& pair = *under_way.front();
      seconds += pair.began.elapsed_time(pair.ended) * 1e-3;
      idle.push_back(std::move(under_way.front()));
      under_way.pop_front();
    }
  }
};

StreamTimer::StreamTimer(const c10::Device& device) {
  if (device.is_cuda()) state_ = std::make_unique<State>();
}

void StreamTimer::begin() {
  if (!state_) return;
  state_->read();  // so that no more events are alive than steps are under way
  std::unique_ptr<State::Pair> pair;
  if (state_->idle.empty()) pair = std::make_unique<State::Pair>();
  else pair = std::move(state_->idle.front()), state_->idle.pop_front();
  pair->began.record();
  state_->under_way.push_back(std::move(pair));
}

void StreamTimer::end() {
  if (state_) state_->under_way.back()->ended.record();
}

double StreamTimer::seconds() const {
  if (!state_) return 0;
  state_->read();
  return state_->seconds;
}

#else

struct StreamTimer::State {};
StreamTimer::StreamTimer(const c10::Device&) {}
void StreamTimer::begin() {}
void StreamTimer::end() {}
double StreamTimer::seconds() const { return 0; }

#endif

StreamTimer::~StreamTimer() = default;

}  // namespace paceline::tensor
