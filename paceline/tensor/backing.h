// The memory behind a flat tensor whose addresses stay while parts of it come and go: what a rank does not hold of an arena costs nothing,
// and views of it, in modules and in kernels, stay as they are.
//
// On the CPU the pages of a released range move to the range that is committed next (page_pool.h), or, in memory that other processes
// share, go back to the system (madvise). A page that a range shares with its neighbour stays. Whoever touches what is not committed finds
// zeros, and loses what it writes there with the next commit. On a GPU the pages of tensors that have them (device_pages.h) come and go
// likewise; there, whoever reads what is not committed reads anything, and nobody may write to it. Other tensors stay committed.
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

/// What values of an arena are. A master is a parameter in full precision where the parameter itself is rounded.
enum class Role : std::uint8_t { parameter, gradient, master, moment };
inline constexpr std::size_t kRoles = 4;

/// Bytes that are held for each role, now and at most. Thread-safe.
class Ledger {
 public:
  void add(Role role, std::int64_t bytes);
  std::int64_t bytes(Role role) const { return of(role).now; }
  std::int64_t peak(Role role) const { return of(role).peak; }
  /// Of all roles together: less than the sum of their peaks where one goes as another comes.
  std::int64_t bytes() const { return all_.now; }
  std::int64_t peak() const { return all_.peak; }
  /// Peaks count from what is held now.
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

/// Thread-safe, as long as nobody uses a range that another thread releases.
class Backing {
 public:
  /// All of `flat` is committed, and counted in `ledger`.
  Backing(at::Tensor flat, Role role, std::shared_ptr<Ledger> ledger);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  /// There is memory behind elements [begin, end). What was released before holds anything. Error where there is none left; whatever of the
  /// range was absent may be so still, and commit() can be tried again.
  void commit(std::int64_t begin, std::int64_t end);
  /// Nobody needs what elements [begin, end) hold. Of the pages, twice as many as the largest commit had stay here and are counted; so a
  /// model that goes through memory unit by unit, one computing and one on its way, has them all.
  void release(std::int64_t begin, std::int64_t end);

 private:
  struct Pages {
    std::size_t first, last;
  };
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF, kOwn = 0xFFFFFFFE;  // kOwn: from whoever allocated the tensor, or the system
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
  DevicePages* device_ = nullptr;  // of flat_, where a GPU's pages can go
  std::size_t page_ = 0;           // bytes
  std::uintptr_t base_ = 0;        // of the first page
  std::mutex mutex_;
  std::vector<std::uint32_t> slots_;  // by page: in the pool, or one of the above; empty where nothing can be released
  bool prepared_ = false;             // something was released
  std::unique_ptr<PagePool> pool_;    // none where pages cannot move
  std::size_t largest_ = 0;           // pages of a commit
};

}  // namespace paceline::tensor
