// Gloo's sends and receives, and the threads that wait for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gloo/transport/context.h>

#include "paceline/comm/shared/group.h"

namespace paceline::comm::over_gloo {

using Context = gloo::transport::Context;

class Watchers;

/// One send or receive.
class Ticket {
 public:
  enum class State { posted, done, broken };

  /// `host`: the group whose bell rings when it is done; may be null.
  Ticket(Context& context, Watchers& watchers, const shared::Group* host, void* data, std::size_t bytes, bool sends)
      : buffer_(context.createUnboundBuffer(data, bytes)), watchers_(watchers), host_(host), sends_(sends) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket();

  /// Throws what Gloo throws if the connection is already broken.
  void post(int peer, std::uint64_t slot);
  State look();
  /// Waits until it is done, broken, or being destroyed.
  void wait();

 private:
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  Watchers& watchers_;
  const shared::Group* host_;
  const bool sends_;
  std::atomic<bool> asked_ = false, watched_ = false;
  std::atomic<State> state_ = State::posted;
};

/// Threads that wait for tickets, one each, because Gloo cannot be asked whether something is done without waiting for it. A thread that
/// is done with a ticket serves the next, so there are as many threads as there were ever messages in flight at the same time.
class Watchers {
 public:
  ~Watchers();
  void watch(Ticket& ticket);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Ticket*> waiting_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace paceline::comm::over_gloo
