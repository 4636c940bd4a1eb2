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
    : flat_(std::move(flat)), role_(role), ledger_(std::move(ledger)) {
  const std::size_t bytes = flat_.nbytes();
  if (!flat_.is_cpu() || bytes == 0) {
    ledger_->add(role_, static_cast<std::int64_t>(bytes));
    return;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(flat_.data_ptr());
  base_ = begin / page_bytes() * page_bytes();
  slots_.assign((begin + bytes - base_ + page_bytes() - 1) / page_bytes(), kOwn);
  count(std::ssize(slots_));
}

Backing::~Backing() {
  if (slots_.empty()) ledger_->add(role_, -static_cast<std::int64_t>(flat_.nbytes()));
  else count(-std::ranges::count(slots_, kOwn) - static_cast<std::int64_t>(pool_ ? pool_->held() : 0));
}

std::byte* Backing::address(std::size_t page) const { return reinterpret_cast<std::byte*>(base_ + page * page_bytes()); }  // NOLINT

void Backing::count(std::int64_t pages) { ledger_->add(role_, pages * static_cast<std::int64_t>(page_bytes())); }

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
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(flat_.data_ptr()) - base_;
  const std::size_t size = flat_.element_size();
  const Pages pages{(first + static_cast<std::size_t>(begin) * size) / page_bytes(),
                    (first + static_cast<std::size_t>(end) * size + page_bytes() - 1) / page_bytes()};
  const std::lock_guard lock(mutex_);
  std::size_t brought = 0;
  for (const Pages& run : runs(pages, /*absent=*/true)) bring(run), brought += run.last - run.first;
  largest_ = std::max(largest_, brought);
}

void Backing::bring(Pages run) {
  const std::size_t pages = run.last - run.first;
  if (pool_) {
    const auto held = static_cast<std::int64_t>(pool_->held());
    std::ranges::copy(pool_->lend(address(run.first), pages), slots_.begin() + static_cast<std::ptrdiff_t>(run.first));
    return count(static_cast<std::int64_t>(pool_->held()) - held);
  }
  // All at once: as faults they would come one by one. It is advice, and whoever touches a page gets it anyway.
  madvise(address(run.first), pages * page_bytes(), MADV_POPULATE_WRITE);
  std::fill_n(slots_.begin() + static_cast<std::ptrdiff_t>(run.first), pages, kOwn);
  count(static_cast<std::int64_t>(pages));
}

void Backing::release(std::int64_t begin, std::int64_t end) {
  if (slots_.empty() || begin >= end) return;
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(flat_.data_ptr()) - base_;
  const std::size_t size = flat_.element_size();
  const Pages pages{(first + static_cast<std::size_t>(begin) * size + page_bytes() - 1) / page_bytes(),
                    (first + static_cast<std::size_t>(end) * size) / page_bytes()};
  const std::lock_guard lock(mutex_);
  const std::vector<Pages> held = pages.first < pages.last ? runs(pages, /*absent=*/false) : std::vector<Pages>();
  if (held.empty()) return;
  for (const Pages& run : held) take_away(run);
  if (!pool_) return;
  const std::size_t before = pool_->held();
  pool_->shrink(2 * largest_);
  count(static_cast<std::int64_t>(pool_->held()) - static_cast<std::int64_t>(before));
}

void Backing::take_away(Pages run) {
  for (std::size_t page = run.first; page < run.last;) {
    std::size_t last = page;
    const bool own = slots_[page] == kOwn;
    while (last < run.last && (slots_[last] == kOwn) == own) ++last;
    if (own) give_back({page, last});
    else pool_->take_back(address(page), slots_.data() + page, last - page);
    std::fill(slots_.begin() + static_cast<std::ptrdiff_t>(page), slots_.begin() + static_cast<std::ptrdiff_t>(last), kAbsent);
    page = last;
  }
}

// Memory that other processes share stays until it is removed from its file; that of this process alone has none, and its pages can move.
void Backing::give_back(Pages run) {
  const std::size_t bytes = (run.last - run.first) * page_bytes();
  if (!prepared_) madvise(address(0), slots_.size() * page_bytes(), MADV_NOHUGEPAGE);  // of which a part could not go
  const bool shared = madvise(address(run.first), bytes, MADV_REMOVE) == 0;
  // Only a private mapping has no file to punch holes into. A locked one says so too, whoever shares it, but keeps its pages.
  const bool may_be_private = !shared && errno == EINVAL;
  const bool gone = shared || madvise(address(run.first), bytes, MADV_DONTNEED) == 0;
  if (!prepared_ && may_be_private && gone) pool_ = PagePool::make(slots_.size());
  prepared_ = true;
  count(-static_cast<std::int64_t>(run.last - run.first));
}

}  // namespace paceline::tensor
