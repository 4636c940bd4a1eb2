#include "paceline/tensor/backing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "paceline/base/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older ones refuse it, and pages come when they are touched
#endif

namespace paceline::tensor {
namespace {

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

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
  committed_.assign((begin + bytes - base_ + page_bytes() - 1) / page_bytes(), true);
  ledger_->add(role_, static_cast<std::int64_t>(committed_.size() * page_bytes()));
}

Backing::~Backing() {
  const auto committed = static_cast<std::size_t>(std::ranges::count(committed_, true));
  ledger_->add(role_, -static_cast<std::int64_t>(committed_.empty() ? flat_.nbytes() : committed * page_bytes()));
}

std::byte* Backing::address(std::size_t page) const { return reinterpret_cast<std::byte*>(base_ + page * page_bytes()); }  // NOLINT

std::vector<Backing::Pages> Backing::change(Pages pages, bool committed) {
  std::vector<Pages> runs;
  std::int64_t changed = 0;
  const std::lock_guard lock(mutex_);
  for (std::size_t page = pages.first; page < pages.last; ++page) {
    if (committed_[page] == committed) continue;
    committed_[page] = committed, ++changed;
    if (!runs.empty() && runs.back().last == page) ++runs.back().last;
    else runs.push_back({page, page + 1});
  }
  ledger_->add(role_, (committed ? changed : -changed) * static_cast<std::int64_t>(page_bytes()));
  return runs;
}

void Backing::commit(std::int64_t begin, std::int64_t end) {
  if (committed_.empty() || begin >= end) return;
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(flat_.data_ptr()) - base_;
  const std::size_t size = flat_.element_size();
  const Pages pages{(first + static_cast<std::size_t>(begin) * size) / page_bytes(),
                    (first + static_cast<std::size_t>(end) * size + page_bytes() - 1) / page_bytes()};
  // All at once: as faults they would come one by one. It is advice, and whoever touches a page gets it anyway.
  for (const Pages& run : change(pages, true)) madvise(address(run.first), (run.last - run.first) * page_bytes(), MADV_POPULATE_WRITE);
}

void Backing::release(std::int64_t begin, std::int64_t end) {
  if (committed_.empty() || begin >= end) return;
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(flat_.data_ptr()) - base_;
  const std::size_t size = flat_.element_size();
  const Pages pages{(first + static_cast<std::size_t>(begin) * size + page_bytes() - 1) / page_bytes(),
                    (first + static_cast<std::size_t>(end) * size) / page_bytes()};
  if (pages.first >= pages.last) return;
  {
    const std::lock_guard lock(mutex_);
    if (!small_pages_) madvise(address(0), committed_.size() * page_bytes(), MADV_NOHUGEPAGE);  // of which a part could not go
    small_pages_ = true;
  }
  for (const Pages& run : change(pages, false)) {
    const std::size_t bytes = (run.last - run.first) * page_bytes();
    // Memory that other processes share stays until it is removed from its file; that of this process alone has none.
    if (madvise(address(run.first), bytes, MADV_REMOVE) != 0) madvise(address(run.first), bytes, MADV_DONTNEED);
  }
}

}  // namespace paceline::tensor
