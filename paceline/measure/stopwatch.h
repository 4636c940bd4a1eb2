// Seconds between marks in a device's work, measured with a clock on the CPU and with events on a GPU.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "paceline/base/clock.h"

namespace paceline::measure {

class Stopwatch {
 public:
  Stopwatch(const c10::Device& device, const Clock& clock);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Forgets earlier marks and makes the first one. A GPU is first kept busy for `ahead` seconds, so that the host has enqueued everything
  /// by the time the measurement begins, and launch gaps do not count: a real run replays recorded steps, which have none.
  void start(double ahead = 0);
  void mark();
  /// Seconds from each mark to the next. Waits for the device.
  std::vector<double> read();

 private:
  struct Events;  // of a GPU

  c10::Device device_;
  const Clock& clock_;
  std::vector<Nanoseconds> marks_;
  std::unique_ptr<Events> events_;
};

double median(std::vector<double> values);

}  // namespace paceline::measure
