#include "paceline/comm/driver.h"

#include <atomic>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::comm {
namespace {

constexpr Nanoseconds kNap = std::chrono::milliseconds(100);  // between two looks at whether the peers live

constexpr int kYields = 4;

Nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on these cores; this waits a few cycles
#endif
}

[[noreturn]] void give_up(const Activity& activity, const Call& call, const std::string& why) {
  const int missing = activity.waits_for();
  throw PeerError(
      missing, std::string(name_of(call.operation.kind)), call.sequence,
      fmt::format("rank {} {} in {} (sequence {} of rank {})", missing, why, describe(call.operation), call.sequence, call.rank));
}

/// Goes on; what an engine throws about a peer leaves with the operation it happened in.
bool advance(Activity& activity, const Call& call) {
  try {
    return activity.advance();
  } catch (const PeerError& error) {
    if (error.step() != 0) throw;  // it knows
    throw PeerError(error.rank(), std::string(name_of(call.operation.kind)), call.sequence,
                    fmt::format("{}, in {} (sequence {} of rank {})", error.what(), describe(call.operation), call.sequence, call.rank));
  }
}

/// Throws if the activity can never be done: too late, or the rank it waits for is gone. True if it is done after all.
bool check(Activity& activity, const Call& call, Nanoseconds waited, Waiter& waiter) {
  const int peer = activity.waits_for();
  if (const std::string reason = peer < 0 ? "" : waiter.gone(peer); !reason.empty()) {
    if (advance(activity, call)) return true;  // it did its part before it left
    give_up(activity, call, reason);
  }
  if (waited > call.operation.deadline)
    give_up(activity, call, fmt::format("did not come within {:.3g} s", seconds(call.operation.deadline)));
  return false;
}

}  // namespace

struct Driver::Task final : Work::State {
  Task(Driver& owner, std::unique_ptr<Activity> work, const Call& what)
      : driver(owner), activity(std::move(work)), call(what), began(now()) {}

  bool done() override { return finished.load(std::memory_order_acquire); }
  void wait() override {
    if (!done()) {
      std::unique_lock lock(driver.mutex_);
      driver.changed_.wait(lock, [this] { return done(); });
    }
    if (error) std::rethrow_exception(error);
  }

  Driver& driver;
  std::unique_ptr<Activity> activity;
  Call call;
  Nanoseconds began;
  std::exception_ptr error;
  std::atomic<bool> finished = false;
};

Driver::~Driver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  waiter_.wake();
  if (thread_.joinable()) thread_.join();
}

void Driver::run(Activity& activity, const Call& call) {
  {
    std::unique_lock lock(mutex_);
    // A collective waits for its turn behind those that were started before it.
    if (call.operation.is_collective()) changed_.wait(lock, [this] { return ordered_.empty(); });
    if (broken_) std::rethrow_exception(broken_);
  }
  try {
    drive(activity, call);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!broken_) broken_ = std::current_exception();
    throw;
  }
}

void Driver::run(std::unique_ptr<Activity> activity, const Call& call) {
  const auto bury = [&] {  // an engine forgets unfinished messages, which touches what other activities use
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

void Driver::drive(Activity& activity, const Call& call) {
  const auto advanced = [&] {
    const std::lock_guard lock(mutex_);
    return advance(activity, call);
  };
  for (int spin = waiter_.spins(); spin >= 0; --spin) {
    if (advanced()) return;
    relax();
  }
  // The rank that is waited for may be about to run on this very core.
  for (int turn = 0; turn < kYields; ++turn) {
    if (advanced()) return;
    std::this_thread::yield();
  }
  const Nanoseconds began = now();
  while (true) {
    const std::uint32_t announced = waiter_.announce();
    bool done = false;
    try {
      done = advanced();
    } catch (...) {
      waiter_.retract();
      throw;
    }
    if (done) return waiter_.retract();
    waiter_.sleep(announced, kNap);
    if (advanced()) return;
    if (const Nanoseconds waited = now() - began; waited > kNap / 2) {
      const std::lock_guard lock(mutex_);
      if (check(activity, call, waited, waiter_)) return;
    }
  }
}

void Driver::finish(Task& task, std::exception_ptr error) {
  task.activity.reset();
  task.error = error;
  task.finished.store(true, std::memory_order_release);
  changed_.notify_all();
}

/// Does one thing with a task; true if that ended it, well or not. With the mutex held, as the two below.
template <class Step>
bool Driver::ended(Task& task, Step step) {
  try {
    if (!step()) return false;
    finish(task, nullptr);
  } catch (...) {
    if (!broken_) broken_ = std::current_exception();
    finish(task, std::current_exception());
  }
  return true;
}

/// Goes through the tasks that are under way and takes out those that `step` ends.
template <class Step>
bool Driver::sweep(Step step) {
  bool any = false;
  while (!ordered_.empty() && ended(*ordered_.front(), [&] { return step(*ordered_.front()); })) {
    ordered_.pop_front();
    any = true;
    if (!ordered_.empty()) ordered_.front()->began = now();  // its turn begins here, and so does its deadline
    if (broken_) fail_all();
  }
  for (auto at = free_.begin(); at != free_.end();) {
    const bool done = ended(**at, [&] { return step(**at); });
    any = any || done;
    at = done ? free_.erase(at) : std::next(at);
  }
  return any;
}

Work Driver::start(std::unique_ptr<Activity> activity, const Call& call) {
  auto task = std::make_shared<Task>(*this, std::move(activity), call);
  const std::lock_guard lock(mutex_);
  if (broken_) std::rethrow_exception(broken_);
  if (call.operation.is_collective()) {
    ordered_.push_back(task);
  } else if (!ended(*task, [&] {
               return advance(*task->activity, task->call);
             })) {  // posted at once, so that messages keep the order of the calls
    free_.push_back(task);
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
  waiter_.wake();
  return Work(task);
}

bool Driver::advance_all() {
  return sweep([](Task& task) { return advance(*task.activity, task.call); });
}

void Driver::check_all() {
  sweep([this](Task& task) { return check(*task.activity, task.call, now() - task.began, waiter_); });
}

void Driver::fail_all() {
  for (const auto& task : ordered_) finish(*task, broken_);
  for (const auto& task : free_) finish(*task, broken_);
  ordered_.clear(), free_.clear();
}

void Driver::loop() {
  std::unique_lock lock(mutex_);
  Nanoseconds checked = now();
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !idle(); });
    if (stopping_) break;
    if (advance_all()) continue;
    const std::uint32_t announced = waiter_.announce();
    if (advance_all()) {
      waiter_.retract();
      continue;
    }
    lock.unlock();
    waiter_.sleep(announced, kNap);
    lock.lock();
    if (stopping_) break;
    if (now() - checked > kNap) {
      check_all();
      checked = now();
    }
  }
  // Whoever still waits learns that the communicator is gone.
  if (!broken_) broken_ = std::make_exception_ptr(Error("the communicator was closed while operations were under way"));
  fail_all();
}

}  // namespace paceline::comm
