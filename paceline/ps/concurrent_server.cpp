#include "paceline/ps/concurrent_server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/ps/kernels.h"

namespace paceline::ps {
namespace {

constexpr Nanoseconds kLookAgain = std::chrono::milliseconds(20);  // how often a waiting pull looks at the clock

}  // namespace

ConcurrentServer::ConcurrentServer(std::unique_ptr<Server> server, const Limits& limits, const Clock& clock)
    : server_(std::move(server)), limits_(limits), clock_(clock) {}

ConcurrentServer::Presence& ConcurrentServer::presence(int worker) {
  if (static_cast<std::size_t>(worker) >= presence_.size()) presence_.resize(static_cast<std::size_t>(worker) + 1);
  return presence_[static_cast<std::size_t>(worker)];
}

std::vector<int> ConcurrentServer::awaited(int worker) const {
  std::vector<int> result;  // without workers that have pushed and are waiting themselves
  for (int i = 0; i < static_cast<int>(presence_.size()); ++i) {
    const Presence& other = presence_[static_cast<std::size_t>(i)];
    if (i != worker && other.here && (other.computes || server_->may_pull(i))) result.push_back(i);
  }
  return result;
}

bool ConcurrentServer::gives_up(int worker, Nanoseconds since) const {
  const Nanoseconds now = clock_.now(), beat = limits_.silence / 4;
  if (now - since < limits_.wait) return false;
  const auto fading =
      [&](int other) {  // silent for longer than a worker that beats, and due to be forgotten, if silent workers are forgotten here
        const Nanoseconds silent = now - presence_[static_cast<std::size_t>(other)].heard;
        return silent > 2 * beat && silent < limits_.silence + beat;
      };
  const std::vector<int> others = awaited(worker);
  return others.empty() || !std::ranges::all_of(others, fading);
}

// When a worker comes back, one of several servers may let it take part a round earlier than another: it is then ahead of the others there.
// If it gets the last minibatch of an epoch, the others get no minibatch with which to catch up.
bool ConcurrentServer::align_rounds(int worker) {
  const auto computes = [](const Presence& one) { return one.here && one.computes; };
  if (std::ranges::any_of(presence_, computes) || awaited(worker).empty()) return false;
  const std::scoped_lock writing(memory_);
  note(Journal::Kind::all_away, 0);
  server_->all_away();
  for (int i = 0; i < static_cast<int>(presence_.size()); ++i) {
    if (const Presence& one = presence_[static_cast<std::size_t>(i)]; !one.here || one.returns) continue;
    note(Journal::Kind::returned, i);
    server_->returned(i);
  }
  changed_.notify_all();
  return server_->may_pull(worker);
}

PeerError ConcurrentServer::refusal(int worker) const {
  const std::vector<int> others = awaited(worker);
  const std::string late =
      others.empty() ? "workers that have not joined" : fmt::format("worker{} {}", others.size() > 1 ? "s" : "", fmt::join(others, ", "));
  return {worker, "pull", server_->version(),
          fmt::format("worker {} waited {:.1f} s for {} at version {}; raise ps.deadline_s, or choose a ps.consistency that does not wait",
                      worker, seconds(limits_.wait), late, server_->version())};
}

PeerError ConcurrentServer::overdue(int worker) {
  const std::scoped_lock state(state_);
  return refusal(worker);
}

bool ConcurrentServer::may_pull(int worker) {
  const std::scoped_lock state(state_);
  return presence(worker).returns || server_->may_pull(worker);
}

bool ConcurrentServer::may_begin(int worker, bool work) {
  const std::scoped_lock state(state_);
  Presence& asking = presence(worker);
  const bool may = asking.returns || server_->may_pull(worker);
  if (may || !work) asking.since.reset();
  else if (!asking.since) asking.since = clock_.now();
  else if (gives_up(worker, *asking.since)) throw refusal(worker);
  return may;
}

void ConcurrentServer::rejoin(int worker) {
  if (const std::scoped_lock state(state_); !presence(worker).returns) return;
  const std::scoped_lock both(state_, memory_);
  if (!std::exchange(presence(worker).returns, false)) return;
  note(Journal::Kind::returned, worker);
  server_->returned(worker);
}

template <class Condition>
bool ConcurrentServer::wait_until(std::unique_lock<std::mutex>& state, Nanoseconds until, const Condition& condition) {
  while (!condition()) {
    const Nanoseconds left = until - clock_.now();
    if (left <= Nanoseconds(0)) return false;
    changed_.wait_for(state, std::min(left, kLookAgain));
  }
  return true;
}

std::int64_t ConcurrentServer::pull(int worker, float* into, float rate, std::int64_t number) {
  if (worker == kObserver) {
    const std::shared_lock reading(memory_);
    server_->show(into);
    server_->settle();
    return server_->version();
  }
  rejoin(worker);
  std::int64_t version = 0;
  std::shared_lock<std::shared_mutex> reading(memory_, std::defer_lock);
  {
    std::unique_lock state(state_);
    presence(worker).waits = true;
    const int changes = presence(worker).changes;
    const auto gone = [&] {  // a worker that comes back meanwhile asks again by itself
      return presence(worker).changes != changes || (changes > 0 && !presence(worker).here);
    };
    const auto settled = [&] { return !closed_.empty() || gone() || server_->may_pull(worker); };
    const Nanoseconds since = clock_.now();
    bool granted =
        wait_until(state, since + limits_.wait / 2, settled) || align_rounds(worker) || wait_until(state, since + limits_.wait, settled);
    while (!granted && !gives_up(worker, since)) granted = changed_.wait_for(state, kLookAgain, settled);
    if (!closed_.empty()) throw Error(closed_);
    if (gone()) throw PeerError(worker, "pull", server_->version(), fmt::format("worker {} left while waiting", worker));
    presence(worker).waits = false;
    if (!granted) throw refusal(worker);
    presence(worker).heard = clock_.now();
    presence(worker).computes = true;
    reading.lock();
    note(into ? Journal::Kind::pulled : Journal::Kind::granted, worker, Push{.rate = rate});
    server_->grant(worker);
    version = server_->version();
  }
  if (into) server_->read(worker, into, rate, number), server_->settle();
  return version;
}

Advice ConcurrentServer::report(int worker, const Report& given, const float* statistics) {
  Advice advice;
  {
    const std::scoped_lock state(state_);
    std::unique_lock writing(memory_, std::defer_lock);
    if (!server_->lock_free()) writing.lock();  // otherwise statistics belong to the state
    presence(worker).heard = clock_.now();
    Report report = given;
    if (pulled_elsewhere(worker)) report.number = 0;
    note(Journal::Kind::reported, worker, Push{}, report,
         std::span(statistics, statistics ? static_cast<std::size_t>(server_->statistics_length()) : 0));
    advice = server_->report(worker, report, statistics);
  }
  server_->settle();
  return advice;
}

Admission ConcurrentServer::push(int worker, float* gradient, const Push& given) {
  const std::span<const float> values(gradient, static_cast<std::size_t>(server_->length()));
  const bool usable = is_usable(values, given, server_->place());
  if (server_->lock_free()) return push_without_lock(worker, gradient, given, usable);
  Admission admission{.fate = Admission::Fate::dropped};
  {
    const std::scoped_lock both(state_, memory_);
    Push push = given;
    if (pulled_elsewhere(worker)) push.number = push.complete_below = 0;
    if (is_duplicate(worker, push)) {
      if (!server_->rule().needs().replica || server_->repeat_answer(worker, push.number, gradient)) admission = {};
    } else if (usable) {
      resume(worker, push);
      presence(worker).computes = false;
      note(Journal::Kind::pushed, worker, push, Report{}, values);
      admission = server_->push(worker, gradient, push);
    } else {
      refuse_now(worker, push);
    }
  }
  server_->settle();
  changed_.notify_all();
  return admission;
}

Admission ConcurrentServer::push_without_lock(int worker, const float* gradient, const Push& push, bool usable) {
  Admission admission{.fate = Admission::Fate::dropped};
  {
    const std::scoped_lock state(state_);
    presence(worker).heard = clock_.now();
    if (usable) {
      presence(worker).computes = false;
      note(Journal::Kind::pushed, worker, push);
      admission = server_->note_push(worker, push);
    } else {
      refuse_now(worker, push);
    }
  }
  if (admission.fate == Admission::Fate::applied) {
    const std::shared_lock adding(memory_);  // concurrently with everyone else who reads or adds
    server_->add_without_lock(gradient, push);
  }
  changed_.notify_all();
  return admission;
}

void ConcurrentServer::refuse(int worker, const Push& push) {
  {
    const std::scoped_lock both(state_, memory_);
    if (!is_duplicate(worker, push)) refuse_now(worker, push);
  }
  changed_.notify_all();
}

// Without a journal, what was computed on a pull that this server did not see belongs to a server that is gone: it is dropped, and its
// numbers must not make duplicates of the same minibatches when they are assigned again.
bool ConcurrentServer::pulled_elsewhere(int worker) { return !journal_ && !presence(worker).computes; }

void ConcurrentServer::refuse_now(int worker, const Push& push) {
  presence(worker).computes = false;
  note(Journal::Kind::refused, worker, push);
  server_->refuse(worker, push);
}

bool ConcurrentServer::is_duplicate(int worker, const Push& push) {
  presence(worker).heard = clock_.now();
  const bool assigned_elsewhere = assigns_ && !journal_ && push.number > 0 && presence(worker).assigned != push.number;
  if (!assigned_elsewhere && !server_->handled(push.number)) return false;
  if (std::exchange(presence(worker).computes, false)) {  // otherwise it retries its own push
    note(Journal::Kind::duplicate, worker);
    server_->ignore_duplicate(worker);
  }
  return true;
}

// With a journal no push is lost: one that was computed across a reconnect or a restart is accepted as if the worker had just pulled, but
// keeps the staleness of its real pull. Without a journal it is dropped, like any push without a pull.
void ConcurrentServer::resume(int worker, const Push& push) {
  if (!journal_ || push.number == 0 || presence(worker).computes) return;
  if (std::exchange(presence(worker).returns, false)) {
    note(Journal::Kind::returned, worker);
    server_->returned(worker);
  }
  if (!server_->may_resume(worker)) return;
  note(Journal::Kind::resumed, worker);
  server_->resume(worker);
}

void ConcurrentServer::assign(int worker, std::int64_t number) {
  const std::lock_guard state(state_);
  presence(worker).assigned = number;
  if (!journal_) return;
  const std::lock_guard memory(memory_);
  note(Journal::Kind::assigned, worker, Push{}, Report{.number = number});
}

void ConcurrentServer::complete(int worker, const Completed& minibatch) {
  const std::scoped_lock both(state_, memory_);
  note(Journal::Kind::completed, worker, Push{}, as_report(minibatch));
  server_->complete(minibatch.number);
}

}  // namespace paceline::ps
