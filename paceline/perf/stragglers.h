// Workers whose times vary from step to step, as in the timings of ps/: a synchronous step takes as long as the slowest worker.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::perf {

/// The distribution of a factor on a step's computation, with mean 1.
struct Jitter {
  std::string distribution = "constant";  // constant, gamma, exponential_tail
  double shape = 100;                     // gamma: standard deviation 1/√shape
  double tail = 0.2;                      // exponential_tail: 1 − tail, and an exponential of this mean on top
};

/// The expected maximum of this many independent draws, 1 or more. ConfigError for an unknown distribution.
double expected_maximum(const Jitter& jitter, std::int64_t workers);

}  // namespace paceline::perf
