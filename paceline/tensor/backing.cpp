#include "paceline/tensor/backing.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "paceline/base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older ones refuse it, and pages come when they are touched
#endif

namespace paceline::tensor {

void Ledger::Sum::add(std::int64_t bytes) {
  const std::int64_t after = now.fetch_add(bytes) + bytes;
  for (std::int64_t most = peak; most < after && !peak.compare_exchange_weak(most, after);) continue;
}

void Ledger::add(Role role, std::int64_t bytes) {
  roles_[static_cast<std::size_t>(role)].add(bytes);
  all_.add(bytes);
}

void Ledger::reset_peaks() {
  for (Sum& role : roles_) role.peak = role.now.load();
  all_.peak = all_.now.load();
}

Backing::Backing(at::Tensor flat, Role role, std::shared_ptr<Ledger> ledger)
    : flat_(std::move(flat)), role_(role), ledger_(std::move(ledger)), device_(DevicePages::of(flat_)) {
  const std::size_t bytes = flat_.nbytes();
  if ((!flat_.is_cpu() && !device_) || bytes == 0) {
    ledger_->add(role_, static_cast<std::int64_t>(bytes));
    return;
  }
  page_ = device_ ? device_->page_bytes() : page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(flat_.data_ptr());
  base_ = begin / page_ * page_;
  slots_.assign((begin + bytes - base_ + page_ - 1) / page_, kOwn);
  count(device_ ? static_cast<std::int64_t>(device_->held()) : std::ssize(slots_));
}

Backing::~Backing() {
  if (slots_.empty()) ledger_->add(role_, -static_cast<std::int64_t>(flat_.nbytes()));
  else if (device_) count(-static_cast<std::int64_t>(device_->held()));
  else count(-std::ranges::count(slots_, kOwn) - static_cast<std::int64_t>(pool_ ? pool_->held() : 0));
}

std::byte* Backing::address(std::size_t page) const { return reinterpret_cast<std::byte*>(base_ + page * page_); }  // NOLINT

void Backing::count(std::int64_t pages) { ledger_->add(role_, pages * static_cast<std::int64_t>(page_)); }

/// All pages that elements [begin, end) touch, or those that they fill.
Backing::Pages Backing::pages_of(std::int64_t begin, std::int64_t end, bool whole) const {
  const std::size_t first = reinterpret_cast<std::uintptr_t>(flat_.data_ptr()) - base_, size = flat_.element_size();
  const std::size_t from = first + static_cast<std::size_t>(begin) * size, to = first + static_cast<std::size_t>(end) * size;
  return whole ? Pages{(from + page_ - 1) / page_, to / page_} : Pages{from / page_, (to + page_ - 1) / page_};
}

std::vector<Backing::Pages> Backing::runs(Pages pages, bool absent) const {
  std::vector<Pages> found;
  for (std::size_t page = pages.first; page < pages.last; ++page) {
    if ((slots_[page] == kAbsent) != absent) continue;
    if (!found.empty() && found.back().last == page) ++found.back().last;
    else found.push_back({page, page + 1});
  }
  return found;
}

void Backing::commit(std::int64_t begin, std::int64_t end) {
  if (slots_.empty() || begin >= end) return;
  const std::lock_guard lock(mutex_);
  std::size_t brought = 0;
  for (const Pages& run : runs(pages_of(begin, end, /*whole=*/false), /*absent=*/true)) bring(run), brought += run.last - run.first;
  largest_ = std::max(largest_, brought);
}

/// Counts how many more or fewer pages `pages` (a pool or a device) holds after `change`, even if that fails half way.
template <class Held, class Change>
void Backing::counted(const Held& pages, Change&& change) {
  const auto before = static_cast<std::int64_t>(pages.held());
  try {
    change();
  } catch (...) {
    count(static_cast<std::int64_t>(pages.held()) - before);
    throw;
  }
  count(static_cast<std::int64_t>(pages.held()) - before);
}

// A run that cannot be committed stays absent.
void Backing::bring(Pages run) {
  const std::size_t pages = run.last - run.first;
  const auto slots = slots_.begin() + static_cast<std::ptrdiff_t>(run.first);
  if (pool_) return counted(*pool_, [&] { std::ranges::copy(pool_->lend(address(run.first), pages), slots); });
  if (device_) {
    counted(*device_, [&] { device_->bring(run.first, pages); });
  } else {
    // All at once, since faults would bring them one by one. It is only a hint: a page that is touched is there anyway.
    madvise(address(run.first), pages * page_, MADV_POPULATE_WRITE);
    count(static_cast<std::int64_t>(pages));
  }
  std::fill_n(slots, pages, kOwn);
}

void Backing::release(std::int64_t begin, std::int64_t end) {
  if (slots_.empty() || begin >= end) return;
  const Pages pages = pages_of(begin, end, /*whole=*/true);
  const std::lock_guard lock(mutex_);
  const std::vector<Pages> held = pages.first < pages.last ? runs(pages, /*absent=*/false) : std::vector<Pages>();
  if (held.empty()) return;
  for (const Pages& run : held) take_away(run);
  if (device_) counted(*device_, [&] { device_->shrink(2 * largest_); });
  else if (pool_) counted(*pool_, [&] { pool_->shrink(2 * largest_); });
}

void Backing::take_away(Pages run) {
  if (device_) {
    device_->take_away(run.first, run.last - run.first);
    std::fill(slots_.begin() + static_cast<std::ptrdiff_t>(run.first), slots_.begin() + static_cast<std::ptrdiff_t>(run.last), kAbsent);
    return;
  }
  for (std::size_t page = run.first; page < run.last;) {
    std::size_t last = page;
    const bool own = slots_[page] == kOwn;
    while (last < run.last && (slots_[last] == kOwn) == own) ++last;
    if (own) give_back({page, last});
    else counted(*pool_, [&] { pool_->take_back(address(page), slots_.data() + page, last - page); });
    std::fill(slots_.begin() + static_cast<std::ptrdiff_t>(page), slots_.begin() + static_cast<std::ptrdiff_t>(last), kAbsent);
    page = last;
  }
}

// Memory that other processes share stays until it is removed from its file; private memory has no file, and its pages can move.
void Backing::give_back(Pages run) {
  const std::size_t bytes = (run.last - run.first) * page_;
  if (!prepared_) madvise(address(0), slots_.size() * page_, MADV_NOHUGEPAGE);  // a part of a large page could not be released
  const bool shared = madvise(address(run.first), bytes, MADV_REMOVE) == 0;
  // Only a private mapping has no file to punch holes into. A locked mapping gives the same error, shared or not, but keeps its pages.
  const bool may_be_private = !shared && errno == EINVAL;
  const bool gone = shared || madvise(address(run.first), bytes, MADV_DONTNEED) == 0;
  if (!prepared_ && may_be_private && gone) pool_ = PagePool::make(slots_.size());
  prepared_ = true;
  count(-static_cast<std::int64_t>(run.last - run.first));
}

}  // namespace paceline::tensor
