// What a rank of a group has on its GPU for the group's collectives.
//
// Ranks that are threads reach one another's buffers. Marks in their streams say when a buffer is filled and when its reader is done, and
// streams wait for marks; hosts do not wait for GPUs. The hosts meet first, so a mark is always set before a stream waits for it: no stream
// waits for a rank that never comes.
//
// Processes reach only one another's windows, which CUDA's IPC opens to them. There every host waits for its own stream before it meets the
// others: a stream that waited for a process which is killed would wait for ever.
#pragma once

#include <memory>
#include <vector>

#include "paceline/comm/gpu.h"

namespace paceline::comm::shared {

inline constexpr std::int64_t kGpuWindow = 64 << 20;  // bytes of a process's GPU memory that are shown to the others at a time

class GpuSide {
 public:
  struct Marks {
    gpu::Mark filled, used;
  };
  /// Shared, because a rank may leave between a meeting and another rank's wait for its marks.
  using SharedMarks = std::shared_ptr<Marks>;

  GpuSide(int rank, int size) : rank_(rank), marks_(static_cast<std::size_t>(size)), windows_(static_cast<std::size_t>(size)) {}

  const SharedMarks& own_marks();
  /// `marks(peer)` is where that rank has its marks. Called in a meeting, which no rank has left yet.
  template <class Find>
  void meet_marks(Find marks) {
    for (std::size_t peer = 0; peer < marks_.size(); ++peer)
      if (!marks_[peer]) marks_[peer] = *marks(static_cast<int>(peer));
  }
  /// The stream waits for the others' buffers to be filled, or for their readers.
  void hold(void* stream, gpu::Mark Marks::*which) const;

  /// Makes this rank's window, and fills in its card, where there is none yet.
  void show_window(gpu::Card& card);
  template <class Find>
  void open_windows(Find card) {
    for (std::size_t peer = 0; peer < windows_.size(); ++peer)
      if (!windows_[peer]) windows_[peer] = gpu::open(*card(static_cast<int>(peer)));
  }
  std::byte* window(int rank) const { return static_cast<std::byte*>(windows_[static_cast<std::size_t>(rank)].get()); }

 private:
  int rank_;
  std::vector<SharedMarks> marks_;              // by rank
  std::vector<std::shared_ptr<void>> windows_;  // by rank
};

}  // namespace paceline::comm::shared
