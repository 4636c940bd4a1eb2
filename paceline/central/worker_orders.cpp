#include "paceline/central/worker_orders.h"

namespace paceline::central {

bool WorkerOrders::any(int worker) const {
  const std::lock_guard lock(mutex_);
  return orders_.contains(worker);
}

std::string WorkerOrders::order(int worker) const {
  const std::lock_guard lock(mutex_);
  const auto found = orders_.find(worker);
  return found == orders_.end() ? "" : found->second;
}

void WorkerOrders::answered(int worker, std::string_view answer) {
  {
    const std::lock_guard lock(mutex_);
    if (orders_.erase(worker) == 0) return;  // it answers an order that was withdrawn
    answers_[worker] = answer;
  }
  changed_.notify_all();
}

void WorkerOrders::give(int worker, const std::string& order) {
  const std::lock_guard lock(mutex_);
  orders_[worker] = order;
}

std::optional<std::string> WorkerOrders::answer(int worker) const {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(worker);
  return found == answers_.end() ? std::nullopt : std::optional(found->second);
}

void WorkerOrders::forget_answers() {
  const std::lock_guard lock(mutex_);
  orders_.clear(), answers_.clear();
}

void WorkerOrders::wait(Nanoseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most);
}

}  // namespace paceline::central
