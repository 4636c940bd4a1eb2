// What a rank of a group keeps on its GPU for the group's collectives.
//
// Ranks that are threads access one another's buffers. Events in their streams mark when a buffer is filled and when its reader is done,
// and streams wait for events; hosts do not wait for GPUs. The hosts synchronise first, so an event is always recorded before a stream
// waits for it: no stream waits for a rank that never arrives. A rank may be gone when another looks for its events, so these are found by
// number.
//
// Processes can access only one another's windows, which CUDA's IPC opens to them. There, every host waits for its own stream before it
// synchronises with the others: a stream that waited for a process that is then killed would wait forever. CUDA must not free a window that
// another process has open, so a rank that leaves first hands its window over to the host's memory (LentWindows).
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
  /// Finds the events of the thread whose notice this is, and makes sure that this rank's GPU can access its memory. False if the rank is
  /// gone. ConfigError if one GPU cannot access the other.
  bool meet(int peer, const Notice& notice, int own_gpu);
  /// Makes the stream wait until the others' buffers are filled, or until their readers are done.
  void hold(void* stream, gpu::Mark Marks::*which) const;

  /// Creates this rank's window if there is none yet, and publishes it in its seat.
  void show_window();
  /// The windows of all ranks, which have published theirs.
  void open_windows();
  std::byte* window(int rank) const { return static_cast<std::byte*>(windows_[static_cast<std::size_t>(rank)].get()); }

 private:
  int rank_;
  Block block_;
  HostMemory& host_;
  std::vector<std::shared_ptr<Marks>> marks_;  // by rank
  std::uint64_t marks_number_ = 0;
  std::set<std::pair<int, int>> reached_;       // pairs of GPUs: the first can access the second
  std::vector<std::shared_ptr<void>> windows_;  // by rank
};

}  // namespace paceline::comm::shared
