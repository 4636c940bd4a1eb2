// Memory that all ranks of a host can access, and what they keep in it.
//
// A group's block starts zeroed, which is the state "nothing has happened": no rank needs to initialise it. Ranks write only to their own
// seat, their own slots and the mail they send, so no lock is needed: a rank stores its data, then a number that says so, and the others
// read the number first. These numbers are stored and loaded with sequential consistency, which also makes sleeping safe (group.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/gpu.h"

namespace paceline::comm::shared {

/// Where memory lies, in terms that mean the same to every rank of the host.
struct Location {
  std::uint64_t file = 0;  // 0: private memory, which the others cannot access
  std::uint64_t offset = 0;
  explicit operator bool() const { return file != 0; }
};

/// Objects that ranks which are threads publish by number. A rank may be gone when another looks for its object; a number then leads
/// nowhere, where a pointer would lead into freed memory. Thread-safe.
class SharedObjects {
 public:
  std::uint64_t add(const std::shared_ptr<void>& object);  // its number, from 1
  /// Null once its owner has dropped it.
  std::shared_ptr<void> find(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<void>> objects_;
  std::uint64_t last_ = 0;
};

/// Windows on a GPU (gpu_side.h) whose rank has left while another process still had them open: CUDA must not free such memory. They are
/// freed when the next one is added and nobody has them open any more, the last ones with the process. Thread-safe.
class LentWindows {
 public:
  LentWindows() = default;
  ~LentWindows();
  LentWindows(const LentWindows&) = delete;
  LentWindows& operator=(const LentWindows&) = delete;
  /// `openers`: how many processes have it open.
  void add(std::shared_ptr<void> window, const std::atomic<std::uint32_t>& openers);

 private:
  struct Window {
    std::shared_ptr<void> memory;
    const std::atomic<std::uint32_t>* openers;  // in a block of this host's
  };
  std::mutex mutex_;
  std::vector<Window> windows_;
};

/// Memory of one host, as one of its ranks sees it.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  /// The location of this rank's memory; nothing if it is private.
  virtual Location locate(const void* data, std::int64_t bytes) const = 0;
  /// The address of any rank's memory in this process.
  virtual std::byte* address(Location location) = 0;
  virtual Memory allocate(std::int64_t bytes) = 0;
  /// Zeroed memory for a group of this many ranks, which begins with their Block. It is reused once all of them have left it.
  virtual Location allocate_block(std::int64_t bytes, int ranks) = 0;
  /// The objects of ranks that are threads; null if they are processes.
  virtual SharedObjects* objects() { return nullptr; }
  /// How a rank (of the whole host) is known to be gone; empty while it is alive.
  virtual std::string gone(int host_rank) = 0;
  LentWindows& lent_windows() { return lent_windows_; }

 private:
  LentWindows lent_windows_;
};

inline constexpr std::int8_t kNoGpu = -1;
inline constexpr std::int64_t kSmall = 512;         // bytes: up to this size a collective goes through slots, with one barrier
inline constexpr std::int64_t kWindow = 512 << 10;  // bytes of private memory that the others see at a time
inline constexpr std::int64_t kPiece = 32 << 10;    // bytes of private memory in one piece of mail
inline constexpr int kPieces = 4;                   // pieces in flight between two ranks

/// What a rank contributes to a collective: one cache line, so that waiting for `turn` fetches the rest as well.
struct alignas(64) Notice {
  std::atomic<std::uint64_t> turn;  // of the group's collectives, from 1
  Operation::Kind kind;
  DType dtype;
  ReduceOp op;
  std::int8_t gpu;  // that the memory lies on; kNoGpu: host memory
  std::int32_t root;
  std::int64_t count;
  Location buffer, input;
  std::uint64_t marks;  // on a GPU, for ranks that are threads: their number among the shared objects
};
static_assert(sizeof(Notice) == 64);

/// What wakes a sleeper (transport.h).
struct Bell {
  std::atomic<std::uint32_t> rung;       // a futex
  std::atomic<std::uint32_t> announced;  // sleepers
};

struct alignas(64) Seat {
  Notice notices[2];                             // of this turn and the one before, which others may still read
  alignas(64) std::atomic<std::uint64_t> phase;  // barriers after the first one of a turn
  alignas(64) Bell bells[2];                     // of the rank's callers and of its helper
  enum Presence : std::uint32_t { kHere, kLeft, kOut };
  std::atomic<std::uint32_t> presence;        // left: closed its communicator; out: no longer accesses the block
  std::atomic<std::uint32_t> blamed;          // 1 + the rank of the run because of which it gave up
  gpu::Card window;                           // on its GPU; written before the notice of the first collective that needs it
  std::atomic<std::uint32_t> window_openers;  // ranks that have it open
};

struct alignas(64) Mail {
  enum State : std::uint32_t { kFree, kFull, kTaken };
  std::atomic<std::uint32_t> state;
  std::uint32_t message;  // number of the message between these two ranks
  std::uint64_t tag;
  std::int64_t bytes;   // of the whole message
  std::int64_t offset;  // of this piece
  std::int64_t size;    // of this piece
  Location at;          // nowhere: the piece lies in `data`
  alignas(64) std::byte data[kPiece];
};

/// The shared block of a group of `size` ranks.
class Block {
 public:
  Block(std::byte* memory, int size) : memory_(memory), size_(size) {}
  static std::int64_t bytes(int size) {
    const std::int64_t ranks = size;
    return ranks * (static_cast<std::int64_t>(sizeof(Seat)) + 2 * kSmall + kWindow) +
           ranks * ranks * kPieces * static_cast<std::int64_t>(sizeof(Mail));
  }

  Seat& seat(int rank) const { return reinterpret_cast<Seat*>(memory_)[rank]; }
  bool is_deserted() const {
    for (int rank = 0; rank < size_; ++rank)
      if (seat(rank).presence.load(std::memory_order_acquire) != Seat::kOut) return false;
    return true;
  }
  std::byte* slot(int rank, int parity) const { return slots() + (2 * rank + parity) * kSmall; }
  std::byte* window(int rank) const { return slots() + size_ * 2 * kSmall + rank * kWindow; }
  Mail& mail(int from, int to, int piece) const {
    auto* first = reinterpret_cast<Mail*>(slots() + size_ * (2 * kSmall + kWindow));
    return first[(from * size_ + to) * kPieces + piece];
  }

 private:
  std::byte* slots() const { return memory_ + size_ * sizeof(Seat); }

  std::byte* memory_;
  int size_;
};

}  // namespace paceline::comm::shared
