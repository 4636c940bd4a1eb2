// Which minibatches of a run of processes are waiting, assigned and complete. Server 0 assigns them in the order of their sequence numbers.
//
// A minibatch is complete once its worker has an acknowledgement from every server and has told server 0. Until then it may be assigned
// again: server 0 cannot know which servers have applied it, but each server ignores duplicates (ps/ledger.h).
//
// A plain state machine: its owner locks it and tells it the time.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "paceline/base/clock.h"
#include "paceline/central/finished.h"
#include "paceline/ps/journal.h"
#include "paceline/ps/transports/task.h"

namespace paceline::central {

class Minibatches {
 public:
  /// `durable`: servers have journals, so that a push of a worker that reconnected counts. A worker that is expected back must return
  /// within `deadline`.
  Minibatches(bool durable, Nanoseconds deadline) : durable_(durable), deadline_(deadline) {}

  /// Called while a journal is replayed, before any minibatch is assigned: which minibatch each worker had, and which are complete.
  void replay(ps::Journal::Kind kind, int worker, const ps::Completed& minibatch);
  std::int64_t replayed() const { return std::ssize(replayed_); }

  /// The run has reached this minibatch. Returns whether it needs a worker. It does not if it was completed before a restart, or if the
  /// worker that had it is expected back with it. Minibatches before the very first one are complete.
  bool begin(const ps::Task& task, Nanoseconds now);
  void add(const ps::Task& task) { waiting_.push_back(task); }

  /// A worker asks for work, so it has none. Minibatches whose worker did not return in time become available again.
  void asks(int worker, Nanoseconds now);
  bool any_for(int worker) const { return expected_.contains(worker) || !waiting_.empty(); }
  /// The minibatch with which the worker was expected back, otherwise the first one waiting.
  ps::Task assign(int worker);
  /// Returns whether the completion counts: only the first one does, and without journals only that of the worker that has it assigned.
  bool complete(int worker, const ps::Completed& minibatch);
  /// Its worker is gone. `keeps_place`: the worker is expected back and gets the same minibatch again, because another one would fill its
  /// place in a round twice on servers that already had the first. Returns false if the minibatch is complete.
  bool lose(int worker, const ps::Task& task, bool keeps_place, Nanoseconds now);

  std::int64_t waiting() const { return std::ssize(waiting_); }
  bool all_complete() const { return waiting_.empty() && assigned_.empty(); }
  const std::map<int, std::int64_t>& assigned() const { return assigned_; }  // by worker
  std::int64_t finished() const { return finished_; }                        // how many since the start
  step::StepResult take_sums() { return sums_.take(); }

 private:
  struct Expected {
    ps::Task task;
    Nanoseconds until;
  };
  void requeue(int worker, const ps::Task& task);
  void count(const ps::Completed& minibatch) { sums_.add({minibatch.loss, minibatch.right, minibatch.targets}); }

  bool durable_;
  Nanoseconds deadline_;
  bool begun_ = false;
  std::deque<ps::Task> waiting_;
  std::map<int, std::int64_t> assigned_;  // the minibatch of each worker that has one
  std::map<int, Expected> expected_;      // workers that are expected back, with what they had
  ps::SequenceSet completed_;
  std::map<int, std::int64_t> before_;              // before a restart: the last minibatch of each worker, from the journal
  std::map<std::int64_t, ps::Completed> replayed_;  // completed before a restart, and not yet counted
  std::int64_t finished_ = 0;
  Finished sums_;
};

}  // namespace paceline::central
