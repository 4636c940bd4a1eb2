#include "paceline/comm/shared/group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <thread>

namespace paceline::comm::shared {
namespace {

constexpr int kSpins = 400;  // ten to twenty microseconds: longer than a meeting takes, far shorter than a time slice

// Not the private kind of futex: its word lies in memory that several processes map.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Nanoseconds at_most) {
  const timespec time{.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000'000),
                      .tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Group::Group(int rank, std::vector<int> host_ranks, std::shared_ptr<HostMemory> host, std::byte* block)
    : bases(host_ranks.size()),
      ins(host_ranks.size()),
      outs(host_ranks.size()),
      shifted_outs(host_ranks.size()),
      rank_(rank),
      size_(static_cast<int>(host_ranks.size())),
      // Spinning helps only where every rank has a core; otherwise it keeps the core from the very rank it waits for.
      spins_(host_ranks.size() <= std::thread::hardware_concurrency() ? kSpins : 0),
      host_ranks_(std::move(host_ranks)),
      host_(std::move(host)),
      block_(block, size_) {
  for (int peer = 0; peer < size_; ++peer) bells_.push_back(&seat(peer));
}

void Group::ring_in(const Group& larger, const std::vector<int>& ranks) {
  for (int peer = 0; peer < size_; ++peer) bells_[static_cast<std::size_t>(peer)] = &larger.seat(ranks[static_cast<std::size_t>(peer)]);
}

Group::~Group() {
  seat(rank_).left.store(1, std::memory_order_seq_cst);
  ring_all();
}

void Group::ring(int peer) const {
  // What changed was stored, and will be looked at, in sequential order too: either the sleeper sees it, or we see the sleeper.
  Seat& other = bell_of(peer);
  if (other.sleepers.load(std::memory_order_seq_cst) == 0) return;
  other.bell.fetch_add(1, std::memory_order_release);
  futex_wake(other.bell);
}

void Group::ring_all() const {
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) ring(peer);
}

std::uint32_t Group::announce() {
  Seat& own = bell_of(rank_);
  own.sleepers.fetch_add(1, std::memory_order_seq_cst);
  return own.bell.load(std::memory_order_seq_cst);
}

void Group::sleep(std::uint32_t announced, Nanoseconds at_most) {
  futex_wait(bell_of(rank_).bell, announced, at_most);
  retract();
}

void Group::retract() { bell_of(rank_).sleepers.fetch_sub(1, std::memory_order_relaxed); }

void Group::wake() {
  Seat& own = bell_of(rank_);
  own.bell.fetch_add(1, std::memory_order_release);
  futex_wake(own.bell);
}

std::string Group::gone(int peer) {
  if (seat(peer).left.load(std::memory_order_acquire) != 0) return "left";
  return host_->gone(host_ranks_[static_cast<std::size_t>(peer)]);
}

}  // namespace paceline::comm::shared
