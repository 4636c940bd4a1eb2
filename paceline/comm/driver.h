// Drives a communicator's activities: in the thread of a caller that waits for one, or in a helper thread while no caller waits.
//
// Collectives are driven one at a time, in the order of the calls; sends and receives concurrently. A failure is permanent: a
// collective that half the ranks have left cannot be repaired, so every later call throws the first error again. The other ranks are told
// immediately, and told which rank is to blame, even while this rank's caller is computing: they would wait for this rank in vain.
//
// A rank usually computes on all its cores while operations are in flight, so the helper must cost little. It is never woken to begin an
// operation: start() and done() make what progress they can in the caller's thread without waiting, unless the helper has a core to itself,
// or the memory is on a GPU, whose work has to be waited for. It stays asleep while a caller waits and drives. Otherwise peers wake it:
// when data arrives over a network or in a mailbox, and when a peer that may be waiting for it is about to sleep (shared/group.h).
#pragma once

#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "paceline/comm/activity.h"
#include "paceline/comm/judge.h"
#include "paceline/comm/transport.h"
#include "paceline/comm/work.h"

namespace paceline::comm {

class Driver {
 public:
  Driver(Waiter& waiter, const Judge& judge) : waiter_(waiter), judge_(judge) {}
  /// Threads that are still waiting get an error saying that the communicator is gone.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Waits until the activity is done. Throws PeerError at the call's deadline, or when a rank that it waits for is gone.
  void run(Activity& activity, const Call& call);
  void run(std::unique_ptr<Activity> activity, const Call& call);
  Work start(std::unique_ptr<Activity> activity, const Call& call);

 private:
  struct Task;
  using By = Sleeper;  // the thread that is driving

  /// Calls `look` until it returns true: often at first, then whenever the bell rings. `check` is called a few times a second with the
  /// elapsed time, and may also end the wait. Both are called with the mutex held.
  template <class Look, class Check>
  void wait_until(Look look, Check check);
  /// As above, but drives all tasks in the meantime.
  template <class Done>
  void drive_until(Done done);
  void help();
  void look();
  void abandon(Task& task);

  // This and everything below are called with the mutex held.
  template <class Step>
  bool ended(Task& task, Step step);
  template <class Step>
  void sweep(By who, Step step);
  void advance_all(By who);
  void check_all(By who);                                        // deadlines, and ranks that are gone
  void fail(const std::exception_ptr& error, const Call& call);  // fails permanently, and informs the other ranks
  void fail_all();
  void set_duty();   // registers the helper's bell while it is on duty
  void hand_over();  // leaves the remaining work to the helper
  void finish(Task& task, const std::exception_ptr& error);
  bool idle() const { return ordered_.empty() && free_.empty(); }

  Waiter& waiter_;
  const Judge& judge_;
  std::mutex mutex_;                           // activities share their engine's state: one advances at a time
  std::deque<std::shared_ptr<Task>> ordered_;  // collectives; the first one is in flight
  std::list<std::shared_ptr<Task>> free_;      // sends and receives
  std::exception_ptr broken_;
  int drivers_ = 0;       // callers that drive the tasks
  bool on_duty_ = false;  // the helper
  bool stopping_ = false;
  std::thread helper_;  // starts with the first operation that is left to it
};

}  // namespace paceline::comm
