#if PACELINE_WITH_GLOO
#include "paceline/comm/engines/gloo_tickets.h"

#include <chrono>

namespace paceline::comm::over_gloo {
namespace {

constexpr std::chrono::hours kForever{24 * 365};

}  // namespace

Ticket::~Ticket() {
  if (sends_) {
    buffer_->abortWaitSend();
  } else {
    buffer_->abortWaitRecv();
  }
  while (watched_.load(std::memory_order_acquire)) std::this_thread::yield();
}

void Ticket::post(int peer, std::uint64_t slot) {
  if (sends_) {
    buffer_->send(peer, slot, 0, buffer_->size);
  } else {
    buffer_->recv(peer, slot, 0, buffer_->size);
  }
}

void Ticket::wait() {
  try {
    if (sends_ ? buffer_->waitSend(nullptr, kForever) : buffer_->waitRecv(nullptr, kForever))
      state_.store(State::done, std::memory_order_seq_cst);
  } catch (const std::exception&) {
    state_.store(State::broken, std::memory_order_seq_cst);
  }
  if (host_) host_->ring(host_->rank());
  watched_.store(false, std::memory_order_release);
}

Ticket::State Ticket::look() {
  if (!asked_.exchange(true)) {
    watched_.store(true, std::memory_order_relaxed);
    watchers_.watch(*this);
  }
  return state_.load(std::memory_order_seq_cst);
}

Watchers::~Watchers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Watchers::watch(Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(&ticket);
  if (idle_ < waiting_.size()) {
    threads_.emplace_back([this] { loop(); });
  } else {
    changed_.notify_one();
  }
}

void Watchers::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    Ticket* ticket = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    ticket->wait();
    lock.lock();
  }
}

}  // namespace paceline::comm::over_gloo
#endif
