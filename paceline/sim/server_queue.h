// The parameter servers of a simulated job: who may pull by the consistency that a run would use (ps/consistency.h), and the queue in which
// gradients are added up and updates are made. The servers share the parameters evenly, so they work in step and have one queue.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "paceline/ps/consistency.h"
#include "paceline/sim/event_loop.h"
#include "paceline/sim/replay.h"

namespace paceline::sim {

class ServerQueue {
 public:
  /// Seconds that a server needs to add a gradient's part to others, and to update its part of the parameters.
  struct Work {
    double add_s = 0, update_s = 0;
  };
  ServerQueue(EventLoop& loop, const ServerOptions& options, int workers);

  EventLoop::Actor actor() const { return actor_; }
  bool synchronous() const { return synchronous_; }

  /// True: it may, and has done so; otherwise it is among `granted` of a later event.
  bool pull(int worker);
  /// A gradient has arrived; `last`: of the worker's step, which is over for the consistency when it has been added.
  void push(int worker, bool last, const Work& work);

  bool busy() const { return !queue_.empty(); }

  struct Outcome {
    bool updated = false;           // an update has been made
    std::vector<int> granted = {};  // may continue with their pull, which has happened
    std::vector<int> in_vain = {};  // leave off, and begin their step anew
  };
  /// Its event has come.
  Outcome on_event();

  std::int64_t updates() const { return updates_; }
  std::int64_t dropped() const { return dropped_; }
  const std::vector<std::int64_t>& staleness() const { return staleness_; }

 private:
  struct Push {
    int worker = 0;
    bool in_vain = false;  // the worker has left off since
    bool last = false;
    Work work;
  };
  void next();
  void grant(int after, Outcome& outcome);
  void count(int worker);
  bool leave_off(int worker);

  EventLoop& loop_;
  EventLoop::Actor actor_;
  bool synchronous_;
  std::unique_ptr<ps::Consistency> consistency_;
  std::deque<Push> queue_;               // the first one is being treated
  bool updating_ = false;                // it has been added, and the update is being made
  std::vector<int> blocked_;             // asked for a pull
  std::vector<std::int64_t> pulled_at_;  // by worker: updates before its last pull
  std::vector<int> gathered_;            // whose gradients the next update has
  std::vector<std::int64_t> staleness_;
  std::int64_t updates_ = 0, dropped_ = 0;
};

}  // namespace paceline::sim
