#include "paceline/tensor/page_pool.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "paceline/base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older ones refuse it, and pages come when they are touched
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7
#endif

namespace paceline::tensor {
namespace {

bool move_pages(std::byte* from, std::byte* to, std::size_t count) {
  const std::size_t bytes = count * page_bytes();
  return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == static_cast<void*>(to);
}

std::byte* map_addresses(std::size_t pages) {
  void* mapped = mmap(nullptr, pages * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, pages * page_bytes(), MADV_NOHUGEPAGE);  // a part of a large page could not move
  return static_cast<std::byte*>(mapped);
}

/// All pages at once, since faults would bring them one by one. Pages must be present before they move: a mapping without pages gets other
/// page offsets on the way, and would be a separate mapping when it returns.
void fill(std::byte* at, std::size_t count) {
  if (madvise(at, count * page_bytes(), MADV_POPULATE_WRITE) == 0) return;
  for (std::size_t i = 0; i < count; ++i) *static_cast<volatile std::byte*>(at + i * page_bytes()) = std::byte{0};
}

/// After the probe, only the limit on mappings can stop a move. The target may then be unmapped, and something may touch it.
bool move_or_leave(std::byte* from, std::byte* to, std::size_t count) {
  if (move_pages(from, to, count)) return true;
  const int why = errno;
  mmap(to, count * page_bytes(), PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  errno = why;
  return false;
}

/// UCX hooks mremap with a four-argument version that ignores the target address.
bool mremap_is_replaced() {
  void* ucm = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (ucm) dlclose(ucm);
  return ucm != nullptr;
}

}  // namespace

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::unique_ptr<PagePool> PagePool::make(std::size_t pages) {
  std::byte* home = pages >= 2 && !mremap_is_replaced() ? map_addresses(pages) : nullptr;
  if (!home) return nullptr;
  std::unique_ptr<PagePool> pool(new PagePool(home, pages));
  return pool->moves_back_and_forth() ? std::move(pool) : nullptr;
}

PagePool::~PagePool() { munmap(home_, states_.size() * page_bytes()); }

std::byte* PagePool::slot(std::size_t index) const { return home_ + index * page_bytes(); }

// Two pages leave one by one, return, and leave together: a kernel that keeps their mappings apart by then (before Linux 6.17 one call
// moves pages of one mapping only) would fail later.
bool PagePool::moves_back_and_forth() const {
  const std::size_t page = page_bytes();
  std::byte* away = map_addresses(2);
  if (!away) return false;
  home_[0] = std::byte{1}, home_[page] = std::byte{2};
  bool moves =
      move_pages(slot(1), away + page, 1) && move_pages(slot(0), away, 1) && away[page] == std::byte{2} && home_[page] == std::byte{0};
  moves = moves && move_pages(away, slot(0), 1) && move_pages(away + page, slot(1), 1) && move_pages(slot(0), away, 2);
  moves = moves && away[0] == std::byte{1} && away[page] == std::byte{2} && home_[0] == std::byte{0};
  munmap(away, 2 * page);
  madvise(home_, 2 * page, MADV_DONTNEED);
  return moves;
}

// Starting with the lowest slot, so that equal steps get the same slots, in few runs.
std::vector<std::uint32_t> PagePool::lend(std::byte* to, std::size_t count) {
  std::vector<std::uint32_t> slots;
  slots.reserve(count);
  for (const State wanted : {State::idle, State::empty}) {
    std::size_t first = 0;
    while (slots.size() < count && first < states_.size()) {
      if (states_[first] != wanted) {
        ++first;
        continue;
      }
      std::size_t last = first + 1;
      while (last < states_.size() && states_[last] == wanted && slots.size() + last - first < count) ++last;
      if (wanted == State::empty) fill(slot(first), last - first), held_ += last - first;
      if (!move_or_leave(slot(first), to + slots.size() * page_bytes(), last - first)) {
        const std::string why = std::strerror(errno);
        std::fill(states_.begin() + static_cast<std::ptrdiff_t>(first), states_.begin() + static_cast<std::ptrdiff_t>(last), State::idle);
        take_back(to, slots.data(), slots.size());
        throw Error(fmt::format("cannot move {} pages of memory: {}; raise vm.max_map_count, or use parallel.zero=1", count, why));
      }
      for (; first < last; ++first) states_[first] = State::lent, slots.push_back(static_cast<std::uint32_t>(first)), ++lent_;
    }
  }
  ensure(slots.size() == count, "a pool has room for all pages that can be lent");
  return slots;
}

// The content is no longer needed: pages that cannot move home return to the system.
void PagePool::take_back(std::byte* from, const std::uint32_t* slots, std::size_t count) {
  for (std::size_t first = 0; first < count;) {
    std::size_t last = first + 1;
    while (last < count && slots[last] == slots[last - 1] + 1) ++last;
    const bool home = move_or_leave(from + first * page_bytes(), slot(slots[first]), last - first);
    if (!home) madvise(from + first * page_bytes(), (last - first) * page_bytes(), MADV_DONTNEED), held_ -= last - first;
    for (std::size_t i = first; i < last; ++i) states_[slots[i]] = home ? State::idle : State::empty;
    first = last;
  }
  lent_ -= count;
}

void PagePool::shrink(std::size_t idle) {
  for (std::size_t last = states_.size(); this->idle() > idle && last > 0;) {
    std::size_t first = last;
    while (first > 0 && states_[first - 1] == State::idle && this->idle() > idle) states_[--first] = State::empty, --held_;
    if (first < last) madvise(slot(first), (last - first) * page_bytes(), MADV_DONTNEED);
    last = first < last ? first : last - 1;
  }
}

}  // namespace paceline::tensor
