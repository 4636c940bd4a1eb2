// The memory behind a flat tensor whose addresses are fixed while parts of its memory come and go: what a rank does not hold of an arena
// costs nothing, and views of it, in modules and in kernels, stay valid.
//
// On the CPU, the pages of a released range move to the range that is committed next (page_pool.h), or, in memory that other processes
// share, return to the system (madvise). A page that a range shares with its neighbour stays. Reading what is not committed gives zeros,
// and what is written there is lost with the next commit. On a GPU, the same holds for tensors with their own pages (device_pages.h),
// except that reading what is not committed gives arbitrary values, and writing is forbidden. Other tensors stay committed.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "paceline/tensor/device_pages.h"
#include "paceline/tensor/page_pool.h"

namespace paceline::tensor {

/// The role of values in an arena. A master is a parameter in full precision, if the parameter itself is rounded.
enum class Role : std::uint8_t { parameter, gradient, master, moment };
inline constexpr std::size_t kRoles = 4;

/// Bytes held for each role, now and at the peak. Thread-safe.
class Ledger {
 public:
  void add(Role role, std::int64_t bytes);
  std::int64_t bytes(Role role) const { return of(role).now; }
  std::int64_t peak(Role role) const { return of(role).peak; }
  /// The peak of all roles together: less than the sum of their peaks if one is released before another is committed.
  std::int64_t bytes() const { return all_.now; }
  std::int64_t peak() const { return all_.peak; }
  /// Resets the peaks to what is held now.
  void reset_peaks();

 private:
  struct Sum {
    void add(std::int64_t bytes);
    std::atomic<std::int64_t> now{0}, peak{0};
  };
  const Sum& of(Role role) const { return roles_[static_cast<std::size_t>(role)]; }

  std::array<Sum, kRoles> roles_;
  Sum all_;
};

/// Thread-safe, as long as no thread uses a range that another one releases.
class Backing {
 public:
  /// At first, all of `flat` is committed; counts in `ledger`.
  Backing(at::Tensor flat, Role role, std::shared_ptr<Ledger> ledger);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  /// Makes sure that there is memory behind elements [begin, end); what was released before has arbitrary content. Error if no memory is
  /// left; parts of the range may then still be absent, and commit() can be tried again.
  void commit(std::int64_t begin, std::int64_t end);
  /// Elements [begin, end) are no longer needed. Twice as many pages as the largest commit needed are kept, and counted; that is enough for
  /// a model that goes through memory unit by unit, with one unit computing and the next one in flight.
  void release(std::int64_t begin, std::int64_t end);

 private:
  struct Pages {
    std::size_t first, last;
  };
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF, kOwn = 0xFFFFFFFE;  // kOwn: from the tensor's allocator, or from the system
  /// Runs of pages [first, last) that are absent, or that are not.
  std::vector<Pages> runs(Pages pages, bool absent) const;
  template <class Held, class Change>
  void counted(const Held& pages, Change&& change);
  void bring(Pages run);
  void take_away(Pages run);
  void give_back(Pages run);  // to the system
  Pages pages_of(std::int64_t begin, std::int64_t end, bool whole) const;
  std::byte* address(std::size_t page) const;
  void count(std::int64_t pages);

  at::Tensor flat_;
  Role role_;
  std::shared_ptr<Ledger> ledger_;
  DevicePages* device_ = nullptr;  // of flat_, if its pages can be released on a GPU
  std::size_t page_ = 0;           // bytes
  std::uintptr_t base_ = 0;        // of the first page
  std::mutex mutex_;
  std::vector<std::uint32_t> slots_;  // by page: in the pool, or one of the above; empty if nothing can be released
  bool prepared_ = false;             // something was released
  std::unique_ptr<PagePool> pool_;    // none if pages cannot move
  std::size_t largest_ = 0;           // pages of a commit
};

}  // namespace paceline::tensor
