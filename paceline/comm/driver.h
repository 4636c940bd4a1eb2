// Drives a communicator's activities: in the caller's thread where it waits anyway, in a thread of its own where the caller goes on.
//
// Collectives are driven one after the other, in the order of the calls; sends and receives all at once. The thread starts with the first
// operation that needs it, and sleeps while there is nothing to do. Whatever fails, fails for good: a collective that half the ranks left
// can not be mended, so every later call throws the first error again.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "paceline/comm/activity.h"
#include "paceline/comm/operation.h"
#include "paceline/comm/transport.h"
#include "paceline/comm/work.h"

namespace paceline::comm {

/// An operation with what messages about it need.
struct Call {
  Operation operation;
  std::int64_t sequence = 0;  // of this rank's operations on this communicator
  int rank = 0;
};

class Driver {
 public:
  explicit Driver(Waiter& waiter) : waiter_(waiter) {}
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Until it is done. Throws PeerError at the call's deadline or when the rank it waits for is gone.
  void run(Activity& activity, const Call& call);
  void run(std::unique_ptr<Activity> activity, const Call& call);
  Work start(std::unique_ptr<Activity> activity, const Call& call);

 private:
  struct Task;

  void drive(Activity& activity, const Call& call);
  void loop();
  template <class Step>
  bool ended(Task& task, Step step);
  template <class Step>
  bool sweep(Step step);
  bool advance_all();  // true: something got done
  void check_all();    // deadlines, and ranks that are gone
  void fail_all();
  void finish(Task& task, std::exception_ptr error);
  bool idle() const { return ordered_.empty() && free_.empty(); }

  Waiter& waiter_;
  std::mutex mutex_;  // activities share their engine's state: one advances at a time
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> ordered_;  // collectives; the first is under way
  std::list<std::shared_ptr<Task>> free_;      // sends and receives
  std::exception_ptr broken_;
  std::thread thread_;
  bool stopping_ = false;
};

}  // namespace paceline::comm
