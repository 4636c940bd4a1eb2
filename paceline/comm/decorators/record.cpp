#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "paceline/base/log.h"
#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {
namespace {

constexpr std::size_t kKept = 32;  // operations, all of which are logged when one fails
constexpr auto kTellEvery = std::chrono::milliseconds(250);
constexpr auto kTellTime = std::chrono::milliseconds(500);  // closing waits for the reporting thread; a lost report is sent again
constexpr auto kAnswerTime =
    std::chrono::milliseconds(1500);  // for the store's answer; whoever asks this late has already waited for a deadline

struct LoggedCall {
  Operation operation;
  std::int64_t number = 0;  // among this rank's operations
  Nanoseconds arrived{0};   // before it waits for any other rank: the last one to arrive delays the others
  Nanoseconds ended{0};     // 0: still in flight
};

/// Wall-clock time, so that the logs of different ranks can be compared.
std::string time_of_day(Nanoseconds moment) {
  const auto wall =
      std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(SteadyClock().now() - moment);
  const auto second = std::chrono::floor<std::chrono::seconds>(wall);
  return fmt::format("{:%H:%M:%S}.{:06} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(second)),
                     std::chrono::duration_cast<std::chrono::microseconds>(wall - second).count());
}

/// The last operations of a rank, and a thread that reports the most recent one to the store.
class History {
 public:
  History(int rank, std::shared_ptr<Store> store) : rank_(rank), store_(std::move(store)) {
    if (store_) teller_ = std::thread([this] { tell(); });
  }
  ~History() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    if (teller_.joinable()) teller_.join();
  }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  std::int64_t begin(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    const std::int64_t number = ++count_;
    at(number) = {operation, number, SteadyClock().now(), Nanoseconds(0)};
    return number;
  }
  void end(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    if (LoggedCall& entry = at(number); entry.number == number && entry.ended.count() == 0) entry.ended = SteadyClock().now();
  }

  /// Logs this rank's last operations, and returns the error with what the culprit did last.
  [[noreturn]] void rethrow(const PeerError& error) {
    // A rank that fails for a reason of its own prints that reason in one line, which should stay visible.
    if (dynamic_cast<const PeerLeft*>(&error) == nullptr && !shown_.exchange(true)) show();
    const std::string last = store_ && error.rank() >= 0 && error.rank() != rank_ ? last_of(error.rank()) : "";
    if (last.empty()) throw;
    const std::string text = fmt::format("{}; last known operation of rank {}: {}", error.what(), error.rank(), last);
    if (const auto* silent = dynamic_cast<const PeerSilent*>(&error))
      throw PeerSilent(error.rank(), error.operation(), error.step(), text, silent->silent());
    throw PeerError(error.rank(), error.operation(), error.step(), text);
  }

 private:
  LoggedCall& at(std::int64_t number) { return entries_[static_cast<std::size_t>(number) % kKept]; }
  static std::string key(int rank) { return fmt::format("record/{}", rank); }

  std::string last_of(int rank) {
    try {
      return store_->get(key(rank), kAnswerTime).value_or("");
    } catch (const Error&) {  // rank 0, which keeps the store, is gone
      return {};
    }
  }

  void show() {
    const std::lock_guard lock(mutex_);
    const std::int64_t first = std::max<std::int64_t>(1, count_ - static_cast<std::int64_t>(kKept) + 1);
    for (std::int64_t number = first; number <= count_; ++number) log::error("rank {}, operation {}: {}", rank_, number, text(at(number)));
  }

  std::string text(const LoggedCall& entry) const {
    const std::string what = fmt::format("{}, arrived {}", describe(entry.operation), time_of_day(entry.arrived));
    if (entry.ended.count() == 0) return fmt::format("{}, in flight for {:.3f} s", what, seconds(SteadyClock().now() - entry.arrived));
    return fmt::format("{}, took {:.6f} s", what, seconds(entry.ended - entry.arrived));
  }

  void tell() {
    std::unique_lock lock(mutex_);
    std::int64_t told = 0;
    while (!wake_.wait_for(lock, kTellEvery, [this] { return closing_; })) {
      std::string line;
      if (count_ != told) {
        const LoggedCall& last = at(count_);
        line = fmt::format("{} (its operation {}, {})", describe(last.operation), last.number, last.ended.count() ? "ended" : "begun");
      }
      const std::int64_t count = count_;
      lock.unlock();
      try {
        if (!line.empty()) store_->set(key(rank_), line, kTellTime);
        told = count;
      } catch (const std::exception&) {
        // Rank 0 is gone or slow: the next report will try again.
      }
      lock.lock();
    }
  }

  int rank_;
  std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool closing_ = false;
  std::atomic<bool> shown_ = false;
  std::int64_t count_ = 0;
  std::array<LoggedCall, kKept> entries_;
  std::thread teller_;
};

/// Calls f; adds what the history knows to a PeerError.
template <class F>
auto guarded(History& history, F f) {
  try {
    return f();
  } catch (const PeerError& error) {
    history.rethrow(error);
  }
}

class RecordedWork final : public Work::State {
 public:
  RecordedWork(Work inner, std::shared_ptr<History> history, std::int64_t number)
      : inner_(std::move(inner)), history_(std::move(history)), number_(number) {}
  bool done() override {
    if (!inner_.done()) return false;
    history_->end(number_);
    return true;
  }
  void wait() override {
    guarded(*history_, [this] { inner_.wait(); });
    history_->end(number_);
  }
  void abandon() override { inner_.abandon(); }

 private:
  Work inner_;
  std::shared_ptr<History> history_;
  std::int64_t number_;
};

class Record final : public Decorator {
 public:
  /// A rank has one history for all its groups.
  Record(std::unique_ptr<Communicator> communicator, std::shared_ptr<History> history)
      : Decorator(std::move(communicator)), history_(std::move(history)) {}
  /// A rank that sees its connection to this one break asks the store why, and this rank may be serving the store.
  ~Record() override { close(); }

  Work start(const Operation& operation) override {
    const std::int64_t number = history_->begin(operation);
    Work work = guarded(*history_, [&] { return inner().start(operation); });
    return Work(std::make_shared<RecordedWork>(std::move(work), history_, number));
  }
  void run(const Operation& operation) override {
    const std::int64_t number = history_->begin(operation);
    guarded(*history_, [&] { inner().run(operation); });
    history_->end(number);
  }

  std::unique_ptr<Communicator> split(int color, int key) override { return std::make_unique<Record>(inner().split(color, key), history_); }

 private:
  std::shared_ptr<History> history_;
};

}  // namespace

std::unique_ptr<Communicator> record(std::unique_ptr<Communicator> inner, std::shared_ptr<Store> store) {
  auto history = std::make_shared<History>(inner->rank(), std::move(store));
  return std::make_unique<Record>(std::move(inner), std::move(history));
}

}  // namespace paceline::comm
