#include "paceline/central/minibatches.h"

#include <algorithm>
#include <utility>

namespace paceline::central {

void Minibatches::replay(ps::Journal::Kind kind, int worker, const ps::Completed& minibatch) {
  if (kind == ps::Journal::Kind::assigned) before_[worker] = minibatch.number;
  else if (completed_.insert(minibatch.number)) replayed_.emplace(minibatch.number, minibatch);
}

bool Minibatches::begin(const ps::Task& task, Nanoseconds now) {
  if (!std::exchange(begun_, true)) completed_.insert_all_below(task.step);
  if (const auto before = replayed_.extract(task.step)) {
    count(before.mapped());
    return false;
  }
  if (completed_.contains(task.step)) return false;  // by a worker that reconnected after the restart
  const auto holder = std::ranges::find(before_, task.step, [](const auto& entry) { return entry.second; });
  if (holder == before_.end()) return true;
  // The worker that had it may still be computing it, and reconnects when it is done.
  assigned_[holder->first] = task.step;
  expected_[holder->first] = {task, now + deadline_};
  return false;
}

void Minibatches::asks(int worker, Nanoseconds now) {
  before_.erase(worker);
  std::erase_if(expected_, [&](const auto& entry) {
    const auto& [holder, expected] = entry;
    const bool complete = completed_.contains(expected.task.step);
    if (!complete && (holder == worker || now < expected.until)) return false;
    if (!complete) requeue(holder, expected.task);
    return true;
  });
}

void Minibatches::requeue(int worker, const ps::Task& task) {
  if (const auto given = assigned_.find(worker); given != assigned_.end() && given->second == task.step) assigned_.erase(given);
  waiting_.push_front(task);
}

ps::Task Minibatches::assign(int worker) {
  const auto own = expected_.extract(worker);
  ps::Task task = own ? own.mapped().task : waiting_.front();
  if (!own) waiting_.pop_front();
  task.complete_below = completed_.watermark();
  assigned_[worker] = task.step;
  return task;
}

bool Minibatches::complete(int worker, const ps::Completed& minibatch) {
  const auto given = assigned_.find(worker);
  if (!durable_ && (given == assigned_.end() || given->second != minibatch.number)) return false;  // its push was dropped
  std::erase_if(assigned_, [&](const auto& one) { return one.second == minibatch.number; });
  if (!completed_.insert(minibatch.number)) return false;
  std::erase_if(waiting_, [&](const ps::Task& task) { return task.step == minibatch.number; });
  ++finished_;
  count(minibatch);
  return true;
}

bool Minibatches::lose(int worker, const ps::Task& task, bool keeps_place, Nanoseconds now) {
  if (completed_.contains(task.step)) return false;
  if (keeps_place) expected_[worker] = {task, now + deadline_};
  else requeue(worker, task);
  return true;
}

}  // namespace paceline::central
