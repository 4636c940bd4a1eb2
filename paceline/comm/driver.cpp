#include "paceline/comm/driver.h"

#include <atomic>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::comm {
namespace {

constexpr Nanoseconds kNap = std::chrono::milliseconds(100);  // between two checks that the peers are alive

constexpr int kYields = 4;

Nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on these cores; this waits a few cycles
#endif
}

/// The rank that an error names, otherwise the one on which it happened.
int culprit_of(const std::exception_ptr& error, int own_rank) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& problem) {
    return problem.rank() < 0 ? own_rank : problem.rank();
  } catch (...) {
    return own_rank;
  }
}

}  // namespace

struct Driver::Task final : Work::State {
  Task(Driver& owner, std::unique_ptr<Activity> work, const Call& what)
      : driver(owner), activity(std::move(work)), call(what), began(now()) {}

  bool done() override {
    if (!is_finished()) driver.look();
    return is_finished();
  }
  void wait() override {
    if (!is_finished()) driver.drive_until([this] { return is_finished(); });
    if (error) std::rethrow_exception(error);
  }
  void abandon() override {
    if (!is_finished()) driver.abandon(*this);
  }
  bool is_finished() const { return finished.load(std::memory_order_acquire); }
  bool is_on_gpu() const { return call.operation.buffer.on_gpu; }

  Driver& driver;
  std::unique_ptr<Activity> activity;
  Call call;
  Nanoseconds began;
  std::exception_ptr error;
  std::atomic<bool> finished = false;
};

Driver::~Driver() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (!broken_) broken_ = std::make_exception_ptr(Error("the communicator was closed while operations were in flight"));
  fail_all();
  set_duty();
  while (drivers_ > 0) {
    waiter_.wake(Sleeper::caller);
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  lock.unlock();
  waiter_.wake(Sleeper::helper);
  if (helper_.joinable()) helper_.join();
}

template <class Look, class Check>
void Driver::wait_until(Look look, Check check) {
  const auto seen = [&] {
    const std::lock_guard lock(mutex_);
    return look();
  };
  for (int spin = waiter_.spins(); spin >= 0; --spin) {
    if (seen()) return;
    relax();
  }
  // Where ranks share cores, the rank we wait for may be about to run on this very core. Elsewhere a yield would give the core to an
  // unrelated process for its whole time slice, whereas a sleeping thread is back as soon as it is woken.
  for (int turn = waiter_.spins() > 0 ? kYields : 0; turn < kYields; ++turn) {
    if (seen()) return;
    std::this_thread::yield();
  }
  struct Announcement {
    explicit Announcement(Waiter& to) : waiter(to) { waiter.announce(Sleeper::caller); }
    ~Announcement() { waiter.retract(Sleeper::caller); }
    Waiter& waiter;
  };
  const Nanoseconds began = now();
  for (Nanoseconds checked = began;;) {
    const Announcement announcement(waiter_);
    const std::uint32_t heard = waiter_.bell(Sleeper::caller);
    Nanoseconds nap = kNap;
    {
      const std::lock_guard lock(mutex_);
      if (look()) return;
      if (now() - checked > kNap / 2) {
        if (check(now() - began)) return;
        checked = now();
      }
      nap = std::min(nap, waiter_.patience());
    }
    waiter_.wake_helpers();
    waiter_.sleep(Sleeper::caller, heard, nap);
  }
}

template <class Done>
void Driver::drive_until(Done done) {
  {
    const std::lock_guard lock(mutex_);
    ++drivers_;
    set_duty();
  }
  wait_until(
      [&] {
        if (!done()) advance_all(By::caller);
        return done();
      },
      [&](Nanoseconds) {
        check_all(By::caller);
        return done();
      });
  const std::lock_guard lock(mutex_);
  --drivers_;
  hand_over();
}

void Driver::run(Activity& activity, const Call& call) {
  {
    std::unique_lock lock(mutex_);
    if (call.operation.is_collective() && !ordered_.empty()) {  // queued behind earlier ones
      lock.unlock();
      drive_until([this] { return ordered_.empty(); });
      lock.lock();
    }
    if (broken_) std::rethrow_exception(broken_);
  }
  try {
    wait_until([&] { return judge_.advance(activity, call, waiter_); },
               [&](Nanoseconds waited) { return judge_.check(activity, call, waited, waiter_); });
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fail(std::current_exception(), call);
    throw;
  }
}

void Driver::run(std::unique_ptr<Activity> activity, const Call& call) {
  const auto bury = [&] {  // the engine drops unfinished messages, which touches state that other activities use
    const std::lock_guard lock(mutex_);
    activity.reset();
  };
  try {
    run(*activity, call);
  } catch (...) {
    bury();
    throw;
  }
  bury();
}

Work Driver::start(std::unique_ptr<Activity> activity, const Call& call) {
  auto task = std::make_shared<Task>(*this, std::move(activity), call);
  const std::lock_guard lock(mutex_);
  if (broken_) std::rethrow_exception(broken_);
  if (call.operation.is_collective()) {
    ordered_.push_back(task);
  } else {
    free_.push_back(task);
  }
  hand_over();
  if (on_duty_ && !helper_.joinable()) helper_ = std::thread([this] { help(); });
  return Work(task);
}

void Driver::look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) hand_over();
}

void Driver::abandon(Task& task) {
  const std::lock_guard lock(mutex_);
  if (task.is_finished()) return;
  const auto why = std::make_exception_ptr(Error(fmt::format("{} was given up", describe(task.call.operation))));
  if (task.call.operation.is_collective()) {
    fail(why, task.call);
    fail_all();
  } else {
    finish(task, why);
    free_.remove_if([](const auto& each) { return each->is_finished(); });
  }
  set_duty();
  if (drivers_ > 0) waiter_.wake(Sleeper::caller);
}

/// From here on, the remaining work is done when a bell rings.
void Driver::hand_over() {
  set_duty();  // registers the helper before looking, so that it misses nothing that arrives afterwards
  const bool at_once = !ordered_.empty() && (waiter_.has_core_for_helper() || ordered_.front()->is_on_gpu());
  if (!at_once) advance_all(By::caller);
  if (on_duty_ && (at_once || waiter_.patience() < kNap)) waiter_.wake(Sleeper::helper);
}

void Driver::help() {
  std::unique_lock lock(mutex_);
  Nanoseconds checked = now();
  while (!stopping_) {
    const std::uint32_t heard = waiter_.bell(Sleeper::helper);
    if (on_duty_) {
      advance_all(By::helper);
      if (now() - checked > kNap) {
        check_all(By::helper);
        checked = now();
      }
    }
    const Nanoseconds nap = on_duty_ ? std::min(kNap, waiter_.patience()) : kNap;
    lock.unlock();
    waiter_.sleep(Sleeper::helper, heard, nap);
    lock.lock();
  }
}

void Driver::set_duty() {
  const bool needed = !idle() && (drivers_ == 0 || (!ordered_.empty() && ordered_.front()->is_on_gpu()));
  if (needed && !on_duty_) waiter_.announce(Sleeper::helper);
  if (!needed && on_duty_) waiter_.retract(Sleeper::helper);
  on_duty_ = needed;
}

void Driver::finish(Task& task, const std::exception_ptr& error) {
  task.activity.reset();
  task.error = error;
  task.finished.store(true, std::memory_order_release);
}

void Driver::fail(const std::exception_ptr& error, const Call& call) {
  if (broken_) return;
  broken_ = error;
  waiter_.give_up(culprit_of(error, judge_.name(call.rank)));
  judge_.tell_launcher(error);
}

/// Calls `step` on a task; true if that ended it, successfully or not.
template <class Step>
bool Driver::ended(Task& task, Step step) {
  try {
    if (!step()) return false;
    finish(task, nullptr);
  } catch (...) {
    fail(std::current_exception(), task.call);
    finish(task, std::current_exception());
  }
  return true;
}

/// Calls `step` on every task in flight and removes those that it ends.
template <class Step>
void Driver::sweep(By who, Step step) {
  bool any = false;
  const auto may_step = [&](const Task& task) { return who == By::helper || !task.is_on_gpu(); };
  while (!ordered_.empty() && may_step(*ordered_.front()) && ended(*ordered_.front(), [&] { return step(*ordered_.front()); })) {
    ordered_.pop_front();
    any = true;
    if (!ordered_.empty()) ordered_.front()->began = now();  // its turn and its deadline begin here
    if (broken_) fail_all();
  }
  for (auto at = free_.begin(); at != free_.end();) {
    const bool done = ended(**at, [&] { return step(**at); });
    any = any || done;
    at = done ? free_.erase(at) : std::next(at);
  }
  if (!any) return;
  set_duty();
  if (drivers_ > (who == By::caller ? 1 : 0)) waiter_.wake(Sleeper::caller);
}

void Driver::advance_all(By who) {
  sweep(who, [this](Task& task) { return judge_.advance(*task.activity, task.call, waiter_); });
}

void Driver::check_all(By who) {
  sweep(who, [this](Task& task) { return judge_.check(*task.activity, task.call, now() - task.began, waiter_); });
}

void Driver::fail_all() {
  for (const auto& task : ordered_) finish(*task, broken_);
  for (const auto& task : free_) finish(*task, broken_);
  ordered_.clear(), free_.clear();
}

}  // namespace paceline::comm
