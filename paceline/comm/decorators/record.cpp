#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/log.h"
#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {
namespace {

constexpr std::size_t kKept = 256;  // operations
constexpr std::size_t kShown = 8;   // in the log, when one fails
constexpr auto kTellEvery = std::chrono::milliseconds(250);
constexpr auto kBlameWait = std::chrono::milliseconds(700);  // deadlines of ranks that wait for one another pass at nearly the same time

struct Entry {
  Operation operation;
  std::int64_t number = 0;  // of this rank's operations
  Nanoseconds arrived{0};   // before it waits for anybody: who arrives last makes the others wait
  Nanoseconds ended{0};     // 0: still under way
};

Nanoseconds now() { return SteadyClock().now(); }

/// The last operations of a rank, and a thread that tells the store about the very last.
class Journal {
 public:
  Journal(int rank, std::shared_ptr<Store> store) : rank_(rank), store_(std::move(store)) {
    if (store_) teller_ = std::thread([this] { tell(); });
  }
  ~Journal() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    if (teller_.joinable()) teller_.join();
  }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  std::int64_t begin(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    const std::int64_t number = ++count_;
    at(number) = {operation, number, now(), Nanoseconds(0)};
    return number;
  }
  void end(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    if (at(number).number == number) at(number).ended = now();
  }

  /// This rank's own last operations, in the log; once.
  void show() {
    if (shown_.exchange(true)) return;
    const std::lock_guard lock(mutex_);
    const std::int64_t first = std::max<std::int64_t>(1, count_ - static_cast<std::int64_t>(kShown) + 1);
    for (std::int64_t number = first; number <= count_; ++number) log::error("rank {}, operation {}: {}", rank_, number, text(at(number)));
  }

  /// The error with what its culprit did last.
  [[noreturn]] void rethrow(const PeerError& error) {
    int culprit = error.rank();
    std::string told;
    try {
      if (store_ && culprit >= 0) {
        if (culprit_ < 0) culprit_ = follow_blame(culprit);  // asked once: what fails later fails for the same reason
        culprit = culprit_;
        told = store_->get(key(culprit)).value_or("");
      }
    } catch (const std::exception&) {
      // The store is on rank 0, which may be the very rank that is gone.
    }
    std::string text = error.what();
    if (culprit != error.rank()) text += fmt::format("; rank {} in turn waits for rank {}", error.rank(), culprit);
    if (!told.empty()) text += fmt::format("; the last that rank {} was known to do: {}", culprit, told);
    throw PeerError(culprit, error.operation(), error.step(), text);
  }

 private:
  Entry& at(std::int64_t number) { return entries_[static_cast<std::size_t>(number) % kKept]; }
  static std::string key(int rank) { return fmt::format("record/{}", rank); }

  /// In a ring a rank waits for its neighbour, who may only be waiting himself. Each says whom he blames; who blames nobody is the one.
  int follow_blame(int blamed) {
    const auto blame_key = [](int rank) { return fmt::format("blame/{}", rank); };
    store_->set(blame_key(rank_), std::to_string(blamed));
    std::vector<int> seen{rank_};
    while (std::find(seen.begin(), seen.end(), blamed) == seen.end()) {
      seen.push_back(blamed);
      const auto next = store_->wait(blame_key(blamed), kBlameWait);
      if (!next) return blamed;
      blamed = std::stoi(*next);
    }
    return seen[1];  // a circle: all wait for one another
  }

  std::string text(const Entry& entry) const {
    if (entry.ended.count() == 0)
      return fmt::format("{}, under way for {:.3f} s", describe(entry.operation), seconds(now() - entry.arrived));
    return fmt::format("{}, took {:.6f} s, ended {:.3f} s ago", describe(entry.operation), seconds(entry.ended - entry.arrived),
                       seconds(now() - entry.ended));
  }

  void tell() {
    std::unique_lock lock(mutex_);
    std::int64_t told = 0;
    while (!wake_.wait_for(lock, kTellEvery, [this] { return closing_; })) {
      if (count_ == told) continue;
      told = count_;
      const Entry& last = at(count_);
      const std::string line =
          fmt::format("{} (its operation {}, {})", describe(last.operation), last.number, last.ended.count() ? "ended" : "begun");
      lock.unlock();
      try {
        store_->set(key(rank_), line);
      } catch (const std::exception&) {
        return;  // the store is gone, and with it whoever could ask
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
  std::atomic<int> culprit_ = -1;
  std::int64_t count_ = 0;
  std::array<Entry, kKept> entries_;
  std::thread teller_;
};

/// Calls f; a PeerError leaves with what the journal knows.
template <class F>
void guarded(Journal& journal, std::int64_t number, F f) {
  try {
    f();
  } catch (const PeerLeft& error) {  // it says itself why, in one line that should not drown
    journal.rethrow(error);
  } catch (const PeerError& error) {
    journal.show();
    journal.rethrow(error);
  }
  journal.end(number);
}

class RecordedWork final : public Work::State {
 public:
  RecordedWork(Work inner, std::shared_ptr<Journal> journal, std::int64_t number)
      : inner_(std::move(inner)), journal_(std::move(journal)), number_(number) {}
  bool done() override { return inner_.done(); }
  void wait() override {
    guarded(*journal_, number_, [this] { inner_.wait(); });
  }
  void abandon() override { inner_.abandon(); }

 private:
  Work inner_;
  std::shared_ptr<Journal> journal_;
  std::int64_t number_;
};

class Record final : public Decorator {
 public:
  Record(std::unique_ptr<Communicator> communicator, std::shared_ptr<Store> store)
      : Decorator(std::move(communicator)), journal_(std::make_shared<Journal>(rank(), std::move(store))) {}

  Work start(const Operation& operation) override {
    const std::int64_t number = journal_->begin(operation);
    return Work(std::make_shared<RecordedWork>(inner().start(operation), journal_, number));
  }
  void run(const Operation& operation) override {
    const std::int64_t number = journal_->begin(operation);
    guarded(*journal_, number, [&] { inner().run(operation); });
  }

 private:
  std::shared_ptr<Journal> journal_;
};

}  // namespace

std::unique_ptr<Communicator> record(std::unique_ptr<Communicator> inner, std::shared_ptr<Store> store) {
  return std::make_unique<Record>(std::move(inner), std::move(store));
}

}  // namespace paceline::comm
