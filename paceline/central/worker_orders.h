// Orders for workers, which find them when they ask server 0 for work, and the workers' answers.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "paceline/base/clock.h"

namespace paceline::central {

class WorkerOrders {
 public:
  // ---- for the threads that serve workers
  bool any(int worker) const;
  std::string order(int worker) const;  // empty if there is none
  void answered(int worker, std::string_view answer);

  // ---- for server 0
  void give(int worker, const std::string& order);
  std::optional<std::string> answer(int worker) const;
  void forget_answers();
  /// Until a worker answers, at most this long.
  void wait(Nanoseconds most);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> orders_, answers_;
};

}  // namespace paceline::central
