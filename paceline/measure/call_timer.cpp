#include "paceline/measure/call_timer.h"

#include <algorithm>
#include <numeric>

#include "paceline/tensor/device.h"

namespace paceline::measure {
namespace {

constexpr int kBatches = 9;
constexpr double kMostCalls = 1e5;
constexpr int kSingleCalls = 12;
constexpr double kPause =
    0.02;  // seconds of computing before a single call: several round trips, and longer than the system's shortest timers

}  // namespace

double CallTimer::of(const std::function<void()>& work) const {
  const auto batch = [&](std::int64_t calls) {
    rank.meet();
    const Nanoseconds began = clock.now();
    for (std::int64_t call = 0; call < calls; ++call) work();
    tensor::synchronize(device);
    return paceline::seconds(clock.now() - began) / static_cast<double>(calls);
  };
  batch(1);  // warms up memory and caches
  const double once = std::max(batch(1), 1e-9);
  const std::int64_t calls = rank.agreed(static_cast<std::int64_t>(std::clamp(seconds / kBatches / once, 1.0, kMostCalls)));
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) times.push_back(batch(calls));
  // The lower quartile: other activity on the machine makes some batches slower, and nothing makes them faster.
  const auto quartile = times.begin() + kBatches / 4;
  std::nth_element(times.begin(), quartile, times.end());
  return rank.mean(*quartile);
}

double CallTimer::behind(const std::function<void()>& before, const std::function<void()>& work) const {
  const double alone = of(before), both = of([&] { before(), work(); });
  return std::max(both - alone, both / 20);  // noise may hide the difference
}

double CallTimer::after_computing(const std::function<void()>& compute, const std::function<void()>& work) const {
  const double pause = std::min(kPause, seconds);
  std::vector<double> times;
  for (int call = 0; call <= kSingleCalls; ++call) {
    rank.meet();
    const Nanoseconds began = clock.now();
    do compute(), tensor::synchronize(device);
    while (paceline::seconds(clock.now() - began) < pause);
    const Nanoseconds called = clock.now();
    work();
    tensor::synchronize(device);
    if (call > 0) times.push_back(paceline::seconds(clock.now() - called));  // the first call warms up memory and caches
  }
  times = rank.largest(std::move(times));
  std::ranges::sort(times);
  constexpr int kQuarter = kSingleCalls / 4;
  return std::accumulate(times.begin() + kQuarter, times.end() - kQuarter, 0.0) / (kSingleCalls - 2 * kQuarter);
}

}  // namespace paceline::measure
