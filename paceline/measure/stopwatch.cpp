#include "paceline/measure/stopwatch.h"

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/tensor/device.h"

#if PACELINE_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#endif

namespace paceline::measure {

#if PACELINE_WITH_CUDA

struct Stopwatch::Events {
  std::vector<at::cuda::CUDAEvent> marks;
};

Stopwatch::Stopwatch(const c10::Device& device, const Clock& clock) : device_(device), clock_(clock) {
  if (device.is_cuda()) events_ = std::make_unique<Events>();
}

void Stopwatch::start(double ahead) {
  marks_.clear();
  if (events_) {
    constexpr double kCyclesPerSecond = 2e9;  // no GPU's clock is faster, so the pause is long enough
    events_->marks.clear();
    if (ahead > 0) at::cuda::sleep(static_cast<std::int64_t>(ahead * kCyclesPerSecond));
  }
  mark();
}

void Stopwatch::mark() {
  if (!events_) return marks_.push_back(clock_.now());
  events_->marks.emplace_back(cudaEventDefault);  // an event that records its time
  events_->marks.back().record(at::cuda::getCurrentCUDAStream(device_.index()));
}

std::vector<double> Stopwatch::read() {
  std::vector<double> between;
  if (events_) {
    tensor::synchronize(device_);
    for (std::size_t i = 1; i < events_->marks.size(); ++i)
      between.push_back(events_->marks[i - 1].elapsed_time(events_->marks[i]) / 1e3);  // milliseconds
  }
  for (std::size_t i = 1; i < marks_.size(); ++i) between.push_back(seconds(marks_[i] - marks_[i - 1]));
  return between;
}

#else

struct Stopwatch::Events {};

Stopwatch::Stopwatch(const c10::Device& device, const Clock& clock) : device_(device), clock_(clock) {}

void Stopwatch::start(double) {
  marks_.clear();
  mark();
}

void Stopwatch::mark() { marks_.push_back(clock_.now()); }

std::vector<double> Stopwatch::read() {
  std::vector<double> between;
  for (std::size_t i = 1; i < marks_.size(); ++i) between.push_back(seconds(marks_[i] - marks_[i - 1]));
  return between;
}

#endif

Stopwatch::~Stopwatch() = default;

double median(std::vector<double> values) {
  ensure(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace paceline::measure
