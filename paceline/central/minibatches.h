// Which minibatches of a run of processes wait for a worker, have one, and are complete. Server 0 deals them out by their sequence numbers.
//
// A minibatch is complete once its worker has an acknowledgement from every server and has told server 0. Until then it may be assigned
// again: server 0 cannot know which servers have applied it, but each server ignores duplicates (ps/ledger.h).
//
// A plain state machine: whoever has it locks, and says what time it is.
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
  /// come.
  Minibatches(bool durable, Nanoseconds deadline) : durable_(durable), deadline_(deadline) {}

  /// During the replay of a journal, before any minibatch is dealt out: which ones workers had, and which are complete.
  void replay(ps::Journal::Kind kind, int worker, const ps::Completed& minibatch);
  std::int64_t replayed() const { return std::ssize(replayed_); }

  /// The run is at this minibatch: whether a worker has to be found for it. Otherwise it is complete since before a restart, or the worker
  /// that had it then is expected back with it. Minibatches before the first one of all are complete.
  bool begin(const ps::Task& task, Nanoseconds now);
  void add(const ps::Task& task) { waiting_.push_back(task); }

  /// A worker asks for work, so it has none. Those whose worker did not come back in time wait for another one.
  void asks(int worker, Nanoseconds now);
  bool any_for(int worker) const { return expected_.contains(worker) || !waiting_.empty(); }
  /// Its own, where it was expected back with one, else the first that waits.
  ps::Task assign(int worker);
  /// Returns whether it counts: only the first completion does, and without journals only that of the worker that has it.
  bool complete(int worker, const ps::Completed& minibatch);
  /// Its worker is gone. `keeps_place`: it is expected back, and gets it again: another's would fill its place in a round a second time on
  /// servers that had the first. Returns false where the minibatch is complete.
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
