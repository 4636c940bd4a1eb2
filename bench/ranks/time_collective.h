// How a collective is timed, the same for Paceline and its peers: batches of calls, a barrier before each batch, the median of the batches.
// Every rank runs it; rank 0 prints "BYTES SECONDS" a line, which bench/collectives.cpp reads. A batch moves 64 MiB but takes no longer
// than a quarter of a second: with more ranks than cores some peers need milliseconds for a kilobyte.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "paceline/base/text.h"

namespace paceline::bench {

inline std::vector<std::int64_t> parse_sizes(const std::string& list) {
  std::vector<std::int64_t> sizes;
  for (const std::string& item : items_of(list)) sizes.push_back(std::atoll(item.c_str()));
  return sizes;
}

/// `share` gives every rank the number that rank 0 has; `finish` waits for calls that a device has still to do.
template <class Barrier, class Share, class Once, class Finish>
void time_collective(int rank, std::int64_t bytes, Barrier barrier, Share share, Once once, Finish finish) {
  constexpr int kBatches = 7;
  constexpr double kLongest = 0.25;
  const auto seconds_a_call = [&](int calls) {
    barrier();
    const auto began = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) once();
    finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / calls;
  };
  once();
  finish();
  const int wanted = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{64} << 20) / std::max<std::int64_t>(bytes, 1), 2, 1000));
  const int calls = share(static_cast<int>(std::clamp(kLongest / seconds_a_call(2), 1.0, static_cast<double>(wanted))));
  std::vector<double> times;
  times.reserve(kBatches);
  for (int batch = 0; batch < kBatches; ++batch) times.push_back(seconds_a_call(calls));
  std::sort(times.begin(), times.end());
  if (rank == 0) {
    std::printf("%lld %.9f\n", static_cast<long long>(bytes), times[kBatches / 2]);
    std::fflush(stdout);
  }
}

template <class Barrier, class Share, class Once>
void time_collective(int rank, std::int64_t bytes, Barrier barrier, Share share, Once once) {
  time_collective(rank, bytes, barrier, share, once, [] {});
}

}  // namespace paceline::bench
