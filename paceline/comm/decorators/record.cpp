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

constexpr std::size_t kKept = 32;  // operations; the log has room for so many when one fails
constexpr auto kTellEvery = std::chrono::milliseconds(250);
constexpr auto kTellTime = std::chrono::milliseconds(500);     // who leaves waits for the teller; what is not heard is told again
constexpr auto kBlameWait = std::chrono::milliseconds(700);    // deadlines of ranks that wait for one another pass at nearly the same time
constexpr auto kAnswerTime = std::chrono::milliseconds(1500);  // of the store. Whoever asks late has waited for a deadline already
constexpr const char* kCause = "cause";

struct Entry {
  Operation operation;
  std::int64_t number = 0;  // of this rank's operations
  Nanoseconds arrived{0};   // before it waits for anybody: who arrives last makes the others wait
  Nanoseconds ended{0};     // 0: still under way
};

/// Where a failure began, as far as the ranks can tell.
struct Cause {
  int rank = -1;
  std::string last;              // what it was known to do; may be empty
  bool store_is_silent = false;  // so it is rank 0

  std::string text() const { return fmt::format("{} {}", rank, last); }
  static Cause of_text(const std::string& text) {
    const auto space = text.find(' ');
    return {std::stoi(text.substr(0, space)), text.substr(space + 1)};
  }
};

Nanoseconds now() { return SteadyClock().now(); }

/// As the clocks of hosts show it, so that the logs of ranks can be laid side by side.
std::string time_of_day(Nanoseconds moment) {
  const auto wall = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(now() - moment);
  const auto second = std::chrono::floor<std::chrono::seconds>(wall);
  return fmt::format("{:%H:%M:%S}.{:06} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(second)),
                     std::chrono::duration_cast<std::chrono::microseconds>(wall - second).count());
}

/// The last operations of a rank, and a thread that tells the store about the very last and hears whether somebody failed.
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
    if (Entry& entry = at(number); entry.number == number && entry.ended.count() == 0) entry.ended = now();
  }

  /// What `rank` of a group is called in the run. Told by each for himself, and asked only when something fails.
  void tell_name(const std::string& group, int rank) {
    if (store_) store_->set(name_key(group, rank), std::to_string(rank_), kAnswerTime);
  }

  /// The error with where it began and what was done there last, after this rank's own last operations went to the log. `group`: whose
  /// rank it speaks of.
  [[noreturn]] void rethrow(const PeerError& error, const std::string& group) {
    const bool left = dynamic_cast<const PeerLeft*>(&error) != nullptr;
    const bool known = store_ && error.rank() >= 0;
    const int blamed = known ? name_in_run(group, error.rank()) : error.rank();
    const Cause cause = known ? cause_of(blamed) : Cause{.rank = blamed, .last = {}};
    // Whoever leaves for a reason of its own says so itself, in one line that should not drown.
    if (!(left && cause.rank == blamed) && !shown_.exchange(true)) show();
    if (!known) throw;
    std::string text = error.what();
    if (blamed != error.rank()) text += fmt::format("; rank {} of the group is rank {} of the run", error.rank(), blamed);
    if (cause.store_is_silent) text += "; rank 0, which keeps the store, does not answer";
    else if (cause.rank == rank_) text += "; the others gave up on this rank: it came too late, or called something else";
    else if (cause.rank != blamed) text += fmt::format("; rank {} in turn waited for rank {}", blamed, cause.rank);
    if (!cause.last.empty()) text += fmt::format("; the last that rank {} was known to do: {}", cause.rank, cause.last);
    throw PeerError(cause.rank, error.operation(), error.step(), text);
  }

 private:
  Entry& at(std::int64_t number) { return entries_[static_cast<std::size_t>(number) % kKept]; }
  static std::string key(int rank) { return fmt::format("record/{}", rank); }
  static std::string name_key(const std::string& group, int rank) { return fmt::format("record{}/{}", group, rank); }

  int name_in_run(const std::string& group, int rank) {
    try {
      return group.empty() ? rank : std::stoi(store_->get(name_key(group, rank), kAnswerTime).value_or(std::to_string(rank)));
    } catch (const PeerError&) {
      return rank;  // the store is silent, as cause_of() will find
    }
  }

  void show() {
    const std::lock_guard lock(mutex_);
    const std::int64_t first = std::max<std::int64_t>(1, count_ - static_cast<std::int64_t>(kKept) + 1);
    for (std::int64_t number = first; number <= count_; ++number) log::error("rank {}, operation {}: {}", rank_, number, text(at(number)));
  }

  /// Asked once: what fails later fails for the same reason.
  Cause cause_of(int blamed) {
    const std::lock_guard lock(asking_);
    if (!cause_) cause_ = find_cause(blamed);
    return *cause_;
  }

  Cause find_cause(int blamed) {
    if (blamed == rank_) return {.rank = rank_, .last = {}};  // the others gave up because of this rank; it accuses nobody
    try {
      Cause cause{.rank = follow_blame(blamed), .last = {}};
      cause.last = store_->get(key(cause.rank), kAnswerTime).value_or("");
      store_->set(kCause, cause.text(), kAnswerTime);  // for those who come when the store is no more
      return cause;
    } catch (const PeerError&) {
      const std::lock_guard lock(mutex_);
      if (heard_) return *heard_;  // rank 0 has left, for this reason
      return {.rank = 0, .last = {}, .store_is_silent = true};
    } catch (const Error&) {  // the store is full
      return {.rank = blamed, .last = {}};
    }
  }

  /// In a ring a rank waits for its neighbour, who may only be waiting himself, or may have left because he waited in vain. Each says whom
  /// he blames before he leaves; who blames nobody is the one.
  int follow_blame(int blamed) {
    const auto blame_key = [](int rank) { return fmt::format("blame/{}", rank); };
    store_->set(blame_key(rank_), std::to_string(blamed), kAnswerTime);
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
    const std::string what = fmt::format("{}, arrived {}", describe(entry.operation), time_of_day(entry.arrived));
    if (entry.ended.count() == 0) return fmt::format("{}, under way for {:.3f} s", what, seconds(now() - entry.arrived));
    return fmt::format("{}, took {:.6f} s", what, seconds(entry.ended - entry.arrived));
  }

  void tell() {
    std::unique_lock lock(mutex_);
    std::int64_t told = 0;
    while (!wake_.wait_for(lock, kTellEvery, [this] { return closing_; })) {
      std::string line;
      if (count_ != told) {
        const Entry& last = at(count_);
        line = fmt::format("{} (its operation {}, {})", describe(last.operation), last.number, last.ended.count() ? "ended" : "begun");
      }
      const std::int64_t count = count_;
      lock.unlock();
      std::optional<std::string> cause;
      try {
        if (!line.empty()) store_->set(key(rank_), line, kTellTime);
        told = count;
        cause = store_->get(kCause, kTellTime);
      } catch (const std::exception&) {
        // Rank 0 is gone, or slow: there is another turn.
      }
      lock.lock();
      if (cause) heard_ = Cause::of_text(*cause);
    }
  }

  int rank_;
  std::shared_ptr<Store> store_;
  std::mutex mutex_, asking_;
  std::condition_variable wake_;
  bool closing_ = false;
  std::atomic<bool> shown_ = false;
  std::optional<Cause> cause_;  // guarded by asking_
  std::optional<Cause> heard_;  // of another rank, by way of the store
  std::int64_t count_ = 0;
  std::array<Entry, kKept> entries_;
  std::thread teller_;
};

/// Calls f; a PeerError leaves with what the journal knows.
template <class F>
auto guarded(Journal& journal, const std::string& group, F f) {
  try {
    return f();
  } catch (const PeerError& error) {
    journal.rethrow(error, group);
  }
}

class RecordedWork final : public Work::State {
 public:
  RecordedWork(Work inner, std::shared_ptr<Journal> journal, std::string group, std::int64_t number)
      : inner_(std::move(inner)), journal_(std::move(journal)), group_(std::move(group)), number_(number) {}
  bool done() override {
    if (!inner_.done()) return false;
    journal_->end(number_);
    return true;
  }
  void wait() override {
    guarded(*journal_, group_, [this] { inner_.wait(); });
    journal_->end(number_);
  }
  void abandon() override { inner_.abandon(); }

 private:
  Work inner_;
  std::shared_ptr<Journal> journal_;
  std::string group_;
  std::int64_t number_;
};

class Record final : public Decorator {
 public:
  /// A rank has one journal for all its groups. `group`: of them, a name that all its ranks give it; empty for the run's.
  Record(std::unique_ptr<Communicator> communicator, std::shared_ptr<Journal> journal, std::string group)
      : Decorator(std::move(communicator)), journal_(std::move(journal)), group_(std::move(group)) {}
  /// Whoever sees this rank's connections break asks the store why, which may be served by this very rank.
  ~Record() override { close(); }

  Work start(const Operation& operation) override {
    const std::int64_t number = journal_->begin(operation);
    Work work = guarded(*journal_, group_, [&] { return inner().start(operation); });
    return Work(std::make_shared<RecordedWork>(std::move(work), journal_, group_, number));
  }
  void run(const Operation& operation) override {
    const std::int64_t number = journal_->begin(operation);
    guarded(*journal_, group_, [&] { inner().run(operation); });
    journal_->end(number);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    auto made = inner().split(color, key);
    std::string group = fmt::format("{}/{}.{}", group_, splits_++, color);
    journal_->tell_name(group, made->rank());
    return std::make_unique<Record>(std::move(made), journal_, std::move(group));
  }

 private:
  std::shared_ptr<Journal> journal_;
  std::string group_;
  int splits_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> record(std::unique_ptr<Communicator> inner, std::shared_ptr<Store> store) {
  auto journal = std::make_shared<Journal>(inner->rank(), std::move(store));
  return std::make_unique<Record>(std::move(inner), std::move(journal), "");
}

}  // namespace paceline::comm
