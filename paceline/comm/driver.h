// Drives a communicator's activities: in the thread of whoever waits for one, and in a helper's while nobody does.
//
// Collectives are driven one after the other, in the order of the calls; sends and receives all at once. Whatever fails, fails for good: a
// collective that half the ranks left can not be mended, so every later call throws the first error again. The others hear of it at once,
// and because of whom, even while this rank's caller computes: who waits for this rank waits in vain.
//
// A rank usually computes on all its cores while operations are under way, so the helper must cost it little. It is never woken to begin
// something: start() and done() go as far as they can without waiting, in the caller's thread, unless there is a core to spare for the
// helper or the memory is a GPU's, which is waited for. It sleeps on while a caller waits, and drives himself. Else it is rung for by
// peers: when something comes over a network or through a mailbox, and when a peer is about to sleep that may wait for it (shared/group.h).
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
  /// Whoever still waits learns that the communicator is gone.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Until it is done. Throws PeerError at the call's deadline or when the rank it waits for is gone.
  void run(Activity& activity, const Call& call);
  void run(std::unique_ptr<Activity> activity, const Call& call);
  Work start(std::unique_ptr<Activity> activity, const Call& call);

 private:
  struct Task;
  using By = Sleeper;  // who drives

  /// Calls `look` until it says true: often at first, then whenever the bell rings. `check` is called a few times a second, with the time
  /// that has passed, and may end it too. Both with the mutex held.
  template <class Look, class Check>
  void wait_until(Look look, Check check);
  /// As above, driving all tasks meanwhile.
  template <class Done>
  void drive_until(Done done);
  void help();
  void look();
  void abandon(Task& task);

  // With the mutex held, as all below.
  template <class Step>
  bool ended(Task& task, Step step);
  template <class Step>
  void sweep(By who, Step step);
  void advance_all(By who);
  void check_all(By who);                                        // deadlines, and ranks that are gone
  void fail(const std::exception_ptr& error, const Call& call);  // for good, and the others are told
  void fail_all();
  void set_duty();   // the helper is announced while it is on duty
  void hand_over();  // what is left to do, to the helper
  void finish(Task& task, const std::exception_ptr& error);
  bool idle() const { return ordered_.empty() && free_.empty(); }

  Waiter& waiter_;
  const Judge& judge_;
  std::mutex mutex_;                           // activities share their engine's state: one advances at a time
  std::deque<std::shared_ptr<Task>> ordered_;  // collectives; the first is under way
  std::list<std::shared_ptr<Task>> free_;      // sends and receives
  std::exception_ptr broken_;
  int drivers_ = 0;       // callers that drive the tasks
  bool on_duty_ = false;  // the helper
  bool stopping_ = false;
  std::thread helper_;  // starts with the first operation that is left to it
};

}  // namespace paceline::comm
