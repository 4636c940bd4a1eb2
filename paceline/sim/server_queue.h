// The parameter servers of a simulated job: who may pull by the consistency that a run would use (ps/consistency.h), and the queue in which
// gradients are added up and updates are made. The servers share the parameters evenly, so all of them are busy at the same times, and one
// queue stands for all.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "paceline/base/event_loop.h"
#include "paceline/ps/consistency.h"
#include "paceline/sim/replay.h"

namespace paceline::sim {

class ServerQueue {
 public:
  /// Seconds in which a server adds its part of a gradient to others, and updates its part of the parameters.
  struct Work {
    double add_s = 0, update_s = 0;
  };
  ServerQueue(EventLoop& loop, const ServerOptions& options, int workers);

  EventLoop::Actor actor() const { return actor_; }
  bool synchronous() const { return synchronous_; }

  /// True: the worker may pull, and has; otherwise it will be among `granted` of a later event.
  bool pull(int worker);
  /// A gradient has arrived. `last`: it is the last one of the worker's step, which the consistency considers done once it has been added.
  void push(int worker, bool last, const Work& work);

  bool busy() const { return !queue_.empty(); }

  struct Outcome {
    bool updated = false;             // an update has been made
    std::vector<int> granted = {};    // workers that may continue, their pull having happened
    std::vector<int> cancelled = {};  // workers that stop and begin their step again
  };
  /// Handles its event.
  Outcome on_event();

  std::int64_t updates() const { return updates_; }
  std::int64_t dropped() const { return dropped_; }
  const std::vector<std::int64_t>& staleness() const { return staleness_; }

 private:
  struct Push {
    int worker = 0;
    bool cancelled = false;  // the worker has stopped meanwhile
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
  std::deque<Push> queue_;               // the first one is being processed
  bool updating_ = false;                // the gradient has been added, and the update is in progress
  std::vector<int> blocked_;             // workers that wait for a pull
  std::vector<std::int64_t> pulled_at_;  // by worker: updates before its last pull
  std::vector<int> gathered_;            // workers whose gradients the next update contains
  std::vector<std::int64_t> staleness_;
  std::int64_t updates_ = 0, dropped_ = 0;
};

}  // namespace paceline::sim
