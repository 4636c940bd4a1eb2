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
  /// `durable`: servers have journals, so that a push of a worker that reconnected counts. A worker that is expected back has `deadline` to
  /// return.
  Minibatches(bool durable, Nanoseconds deadline) : durable_(durable), deadline_(deadline) {}

  /// Called during the replay of a journal, before any minibatch is assigned: which ones workers had, and which are complete.
  void replay(ps::Journal::Kind kind, int worker, const ps::Completed& minibatch);
  std::int64_t replayed() const { return std::ssize(replayed_); }

  /// The run is at this minibatch: returns whether it needs a worker. Otherwise it was completed before a restart, or the worker that had
  /// it then is expected back with it. Minibatches before the very first one are complete.
  bool begin(const ps::Task& task, Nanoseconds now);
  void add(const ps::Task& task) { waiting_.push_back(task); }

  /// A worker asks for work, so it has none. Minibatches whose worker did not come back in time become available again.
  void asks(int worker, Nanoseconds now);
  bool any_for(int worker) const { return expected_.contains(worker) || !waiting_.empty(); }
  /// The one with which the worker was expected back, else the first that is waiting.
  ps::Task assign(int worker);
  /// Returns whether it counts: only the first completion does, and without journals only that of the worker that has it.
  bool complete(int worker, const ps::Completed& minibatch);
  /// Its worker is gone. `keeps_place`: it is expected back and gets the same minibatch again, since another's would fill its place in a
  /// round a second time on servers that had the first. Returns false if the minibatch is complete.
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
  std::map<int, std::int64_t> assigned_;  // workers that have a minibatch, and its number
  std::map<int, Expected> expected_;      // of workers that are expected back, with what they had
  ps::SequenceSet completed_;
  std::map<int, std::int64_t> before_;              // a restart: the last minibatch of each worker, from the journal
  std::map<std::int64_t, ps::Completed> replayed_;  // completed before a restart, and not yet counted
  std::int64_t finished_ = 0;
  Finished sums_;
};

}  // namespace paceline::central
