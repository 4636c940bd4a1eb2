#include "paceline/comm/shared/group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace paceline::comm::shared {
namespace {

constexpr int kSpins = 400;  // ten to twenty microseconds: longer than a barrier, far shorter than a time slice

// Not a private futex: its word lies in memory that several processes map.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanoseconds at_most) {
  const timespec time{.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000'000),
                      .tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void strike(Bell& bell) {
  bell.rung.fetch_add(1, std::memory_order_release);
  futex_wake(bell.rung);
}

}  // namespace

Group::Group(int rank, std::vector<int> host_ranks, int cores, std::shared_ptr<HostMemory> host, std::byte* block,
             std::shared_ptr<const Mover> mover)
    : bases(host_ranks.size()),
      ins(host_ranks.size()),
      outs(host_ranks.size()),
      shifted_outs(host_ranks.size()),
      rank_(rank),
      size_(static_cast<int>(host_ranks.size())),
      // Spinning helps only if every rank has a core; otherwise it keeps the core from the very rank it waits for.
      spins_(size_ <= cores ? kSpins : 0),
      has_core_for_helper_(2 * size_ <= cores),
      lazy_helpers_(!has_core_for_helper_),
      host_ranks_(std::move(host_ranks)),
      host_(std::move(host)),
      mover_(std::move(mover)),
      block_(block, size_) {
  for (int peer = 0; peer < size_; ++peer) sleeping_seats_.push_back(&seat(peer));
}

void Group::ring_in(const Group& larger, const std::vector<int>& ranks) {
  for (int peer = 0; peer < size_; ++peer)
    sleeping_seats_[static_cast<std::size_t>(peer)] = &larger.seat(ranks[static_cast<std::size_t>(peer)]);
}

Group::~Group() {
  gpu_.reset();  // while the block is this group's
  seat(rank_).presence.store(Seat::kLeft, std::memory_order_seq_cst);
  ring_all();
  seat(rank_).presence.store(Seat::kOut, std::memory_order_release);  // from here on the block may belong to another group
}

void Group::ring(int peer) const {
  // The change was stored, and will be loaded, with sequential consistency too: either the sleeper sees it, or we see the sleeper.
  for (Bell& bell : where_sleeps(peer).bells) ring_if_announced(bell);
}

void Group::ring_all() const {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) ring(peer);
}

void Group::ring_meeting() const {
  if (!lazy_helpers_) return ring_all();
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) ring_if_announced(where_sleeps(peer).bells[static_cast<int>(Sleeper::caller)]);
}

void Group::wake_helpers() {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) ring_if_announced(where_sleeps(peer).bells[static_cast<int>(Sleeper::helper)]);
}

void Group::ring_if_announced(Bell& bell) {
  if (bell.announced.load(std::memory_order_seq_cst) != 0) strike(bell);
}

void Group::announce(Sleeper sleeper) { own_bell(sleeper).announced.fetch_add(1, std::memory_order_seq_cst); }
void Group::retract(Sleeper sleeper) { own_bell(sleeper).announced.fetch_sub(1, std::memory_order_relaxed); }
std::uint32_t Group::bell(Sleeper sleeper) { return own_bell(sleeper).rung.load(std::memory_order_seq_cst); }
void Group::sleep(Sleeper sleeper, std::uint32_t heard, Nanoseconds at_most) { futex_wait(own_bell(sleeper).rung, heard, at_most); }
void Group::wake(Sleeper sleeper) { strike(own_bell(sleeper)); }

void Group::give_up(int culprit) {
  seat(rank_).blamed.store(static_cast<std::uint32_t>(culprit + 1), std::memory_order_seq_cst);
  ring_all();
}

int Group::culprit_of(int peer) { return static_cast<int>(seat(peer).blamed.load(std::memory_order_acquire)) - 1; }

std::string Group::gone(int peer) {
  if (seat(peer).presence.load(std::memory_order_acquire) != Seat::kHere) return std::string(kLeft);
  return host_->gone(host_ranks_[static_cast<std::size_t>(peer)]);
}

}  // namespace paceline::comm::shared
