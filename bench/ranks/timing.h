// How a collective is timed, the same for Paceline and its peers: batches of calls, a barrier before each batch, the median of the batches.
// Every rank runs it; rank 0 prints "BYTES SECONDS" a line, which bench/collectives.cpp reads.
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

template <class Barrier, class Once>
void time_collective(int rank, std::int64_t bytes, Barrier barrier, Once once) {
  constexpr int kBatches = 7;
  const int calls = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{64} << 20) / std::max<std::int64_t>(bytes, 1), 2, 1000));
  once(), once();
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    barrier();
    const auto began = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) once();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / calls);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) {
    std::printf("%lld %.9f\n", static_cast<long long>(bytes), times[kBatches / 2]);
    std::fflush(stdout);
  }
}

}  // namespace paceline::bench
