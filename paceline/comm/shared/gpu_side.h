// What a rank of a group has on its GPU for the group's collectives.
//
// Ranks that are threads reach one another's buffers. Marks in their streams say when a buffer is filled and when its reader is done, and
// streams wait for marks; hosts do not wait for GPUs. The hosts meet first, so a mark is always set before a stream waits for it: no stream
// waits for a rank that never comes. A rank may be gone when another looks for its marks, so these are found by number.
//
// Processes reach only one another's windows, which CUDA's IPC opens to them. There every host waits for its own stream before it meets the
// others: a stream that waited for a process which is killed would wait forever. CUDA must not free a window that another process has
// open: whoever leaves first lets the host's memory keep its own (LentWindows).
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "paceline/comm/gpu.h"
#include "paceline/comm/shared/memory.h"

namespace paceline::comm::shared {

inline constexpr std::int64_t kGpuWindow = 64 << 20;  // bytes of a process's GPU memory that are shown to the others at a time

class GpuSide {
 public:
  struct Marks {
    gpu::Mark filled, used;
  };

  GpuSide(int rank, int size, const Block& block, HostMemory& host)
      : rank_(rank), block_(block), host_(host), marks_(static_cast<std::size_t>(size)), windows_(static_cast<std::size_t>(size)) {}
  ~GpuSide();
  GpuSide(const GpuSide&) = delete;
  GpuSide& operator=(const GpuSide&) = delete;

  Marks& own_marks();
  std::uint64_t marks_number() const { return marks_number_; }  // after own_marks()
  /// Finds the marks of a thread whose notice this is, and sees to it that this rank's GPU reaches its memory. False if the rank is
  /// gone. ConfigError if one GPU cannot reach the other.
  bool meet(int peer, const Notice& notice, int own_gpu);
  /// The stream waits for the others' buffers to be filled, or for their readers.
  void hold(void* stream, gpu::Mark Marks::*which) const;

  /// Makes this rank's window where there is none yet, and tells the others in its seat.
  void show_window();
  /// Those of all ranks, which have shown theirs.
  void open_windows();
  std::byte* window(int rank) const { return static_cast<std::byte*>(windows_[static_cast<std::size_t>(rank)].get()); }

 private:
  int rank_;
  Block block_;
  HostMemory& host_;
  std::vector<std::shared_ptr<Marks>> marks_;  // by rank
  std::uint64_t marks_number_ = 0;
  std::set<std::pair<int, int>> reached_;       // GPUs: the first reaches the second
  std::vector<std::shared_ptr<void>> windows_;  // by rank
};

}  // namespace paceline::comm::shared
