// How an update is divided among threads: one parallel region, in which every thread takes an equal share of all elements.
//
// Invariant: a tensor is divided only at multiples of kBlock from its start, so that a sum over it can be computed from its blocks' sums,
// in order, for any number of threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "paceline/optim/optimizer.h"

namespace paceline::optim {

inline constexpr std::int64_t kBlock = 4096;                    // elements
inline constexpr std::int64_t kElementsPerThread = 4 * kBlock;  // fewer are not worth waking a thread

inline std::int64_t blocks_of(std::int64_t count) { return (count + kBlock - 1) / kBlock; }

/// Calls body(thread, threads) on every thread of a team whose size suits this many elements.
template <class Body>
void on_threads(std::int64_t elements, const Body& body) {
  const int threads = static_cast<int>(std::clamp<std::int64_t>(elements / kElementsPerThread, 1, omp_get_max_threads()));
  if (threads == 1) return body(0, 1);
#if defined(__SANITIZE_THREAD__)  // it does not see the OpenMP runtime's barriers, and would report a race in every region
  std::vector<std::jthread> team;
  for (int thread = 0; thread < threads; ++thread) team.emplace_back([&, thread] { body(thread, threads); });
#else
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
#endif
}

/// Divides the tensors among threads and calls body(i, begin, end) for every part of segments[i] that one thread works on.
template <class Body>
void for_each_part(std::span<const Segment> segments, const Body& body) {
  std::int64_t total = 0;
  for (const Segment& segment : segments) total += segment.count;
  on_threads(total, [&](int thread, int threads) {
    const std::int64_t share_begin = total * thread / threads, share_end = total * (thread + 1) / threads;
    std::int64_t start = 0;  // of the tensor, counted in elements of this call
    for (std::size_t i = 0; i < segments.size() && start < share_end; ++i) {
      const std::int64_t count = segments[i].count;
      const auto cut = [&](std::int64_t share) {
        return share >= start + count ? count : std::max<std::int64_t>(share - start, 0) / kBlock * kBlock;
      };
      const std::int64_t begin = cut(share_begin), end = cut(share_end);
      if (begin < end) body(i, begin, end);
      start += count;
    }
  });
}

/// Neighbouring elements of one tensor, at most kBlock.
struct Block {
  std::int64_t offset = 0, count = 0;
  bool decay = true;
};

/// Divides the tensors among threads and calls body(block) for every block of them.
template <class Body>
void for_each_block(std::span<const Segment> segments, const Body& body) {
  for_each_part(segments, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kBlock)
      body(Block{segments[i].offset + at, std::min(end - at, kBlock), segments[i].decay});
  });
}

}  // namespace paceline::optim
