#include "paceline/sim/server_queue.h"

#include <algorithm>
#include <limits>

#include "paceline/sim/network.h"

namespace paceline::sim {

ServerQueue::ServerQueue(EventLoop& loop, const ServerOptions& options, int workers)
    : loop_(loop),
      actor_(loop.add()),
      synchronous_(ps::consistency_kind(options.consistency).synchronous),
      consistency_(ps::make_consistency(options.consistency, options.settings, workers)),
      pulled_at_(static_cast<std::size_t>(workers)) {}

bool ServerQueue::pull(int worker) {
  if (!consistency_->may_pull(worker)) {
    blocked_.push_back(worker);
    return false;
  }
  consistency_->pulled(worker);
  pulled_at_[static_cast<std::size_t>(worker)] = updates_;
  return true;
}

void ServerQueue::push(int worker, bool last, const Work& work) {
  queue_.push_back({worker, false, last, work});
  if (queue_.size() == 1) next();
}

void ServerQueue::next() {
  updating_ = false;
  if (!queue_.empty()) loop_.plan(actor_, nanoseconds(queue_.front().work.add_s));
}

/// Staleness is known only when the update is made.
void ServerQueue::count(int worker) {
  const auto stale = static_cast<std::size_t>(updates_ - pulled_at_[static_cast<std::size_t>(worker)]);
  staleness_.resize(std::max(staleness_.size(), stale + 1));
  ++staleness_[stale];
}

ServerQueue::Outcome ServerQueue::on_event() {
  Outcome outcome;
  const Push push = queue_.front();
  if (updating_ || push.cancelled || !push.last) {  // nothing is left to decide
    queue_.pop_front();
    outcome.updated = updating_;
    if (updating_) grant(push.worker, outcome);
    next();
    return outcome;
  }
  const ps::Admission admission = consistency_->pushed(push.worker, std::numeric_limits<double>::quiet_NaN());
  if (admission.fate == ps::Admission::Fate::dropped) ++dropped_;
  else gathered_.push_back(push.worker);
  if (admission.fate == ps::Admission::Fate::applied) {
    for (const int worker : gathered_) count(worker);
    gathered_.clear(), ++updates_;
    if (consistency_->cancels())
      for (const int worker : consistency_->members())
        if (consistency_->cancelled(worker) && !leave_off(worker)) outcome.cancelled.push_back(worker);
    updating_ = true;
    loop_.plan(actor_, nanoseconds(push.work.update_s));
    return outcome;
  }
  queue_.pop_front();
  grant(push.worker, outcome);
  next();
  return outcome;
}

/// Returns true if its gradient has already arrived, so that the worker need not be notified.
bool ServerQueue::leave_off(int worker) {
  consistency_->pushed(worker, std::numeric_limits<double>::quiet_NaN());
  ++dropped_;
  bool has_come = false;
  for (Push& waiting : queue_) {
    if (waiting.worker != worker) continue;
    waiting.cancelled = true, has_come = has_come || waiting.last;
  }
  return has_come;
}

/// Waiting workers in numerical order, starting after the one that pushed last, as in the virtual executor.
void ServerQueue::grant(int after, Outcome& outcome) {
  const int workers = static_cast<int>(pulled_at_.size());
  std::ranges::sort(blocked_, {}, [&](int worker) { return (worker - after - 1 + 2 * workers) % workers; });
  std::vector<int> still;
  for (const int worker : blocked_) {
    if (consistency_->may_pull(worker)) {
      consistency_->pulled(worker);
      pulled_at_[static_cast<std::size_t>(worker)] = updates_;
      outcome.granted.push_back(worker);
    } else {
      still.push_back(worker);
    }
  }
  blocked_ = std::move(still);
}

}  // namespace paceline::sim
