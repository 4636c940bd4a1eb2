// Watches operations that streams wait for and hosts do not. If one can never be done, the watchdog aborts the communicator, so that no
// stream waits for ever, and the next call of a host throws.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "paceline/base/clock.h"
#include "paceline/comm/engines/nccl_calls.h"

namespace paceline::comm::nccl {

class Watchdog {
 public:
  struct Watched {
    std::shared_ptr<const Event> ready, done;       // its buffer is filled; it is done
    std::function<void(Nanoseconds waited)> check;  // throws if it can never be done; `waited` since it was ready and the first in line
  };

  /// `abort` ends all operations of the communicator, in the watchdog's thread.
  Watchdog(int device, std::function<void()> abort);
  /// Waits until everything is done or aborted.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Operations are watched in the order of the communicator's stream. Waits while very many are in flight, since NCCL would, without end.
  void watch(Watched operation);
  /// Throws what was found about one of them.
  void rethrow();
  /// Waits until all are done; throws like rethrow().
  void settle();

 private:
  void loop();
  bool look(const Watched& first);

  static constexpr std::size_t kMostInFlight = 256;

  int device_;
  std::function<void()> abort_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Watched> watched_;
  std::optional<Nanoseconds> began_;  // of the first one; the thread's own
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread thread_;  // from the first operation on
};

}  // namespace paceline::comm::nccl
