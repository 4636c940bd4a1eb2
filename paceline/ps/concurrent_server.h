// A server for workers that come at the same time: locks, waiting with a deadline, workers that vanish.
//
// Where the numbers lie on a GPU, all of them are worked on in the order of one stream, whoever asks: a call returns when its part is done,
// and a worker calls when its own stream has made what it brings.
//
// Two locks: `state_` guards the state machine, `memory_` the numbers. Pulls copy side by side; a push is alone. Whoever needs both takes
// state_ first.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "paceline/base/clock.h"
#include "paceline/base/error.h"
#include "paceline/ps/journal.h"
#include "paceline/ps/server.h"

namespace paceline::ps {

/// The number of somebody who only looks: it pulls without being granted to, and nobody waits for it.
inline constexpr int kObserver = 16383;

class ConcurrentServer {
 public:
  struct Limits {
    Nanoseconds wait = std::chrono::seconds(30);     // a pull that is not granted for so long is a PeerError
    Nanoseconds silence = std::chrono::seconds(30);  // a worker that was not heard of for so long has left
    bool started_again = false;                      // a launcher starts lost workers again, so that it pays to wait for them
  };

  /// The clock outlives it. A pull that waits looks at it again and again, so that it may be one that a test moves.
  ConcurrentServer(std::unique_ptr<Server> server, const Limits& limits, const Clock& clock);

  bool may_pull(int worker);
  /// The same for a worker that asks again and again instead of waiting in pull(). One that has `work` to do and may not for
  /// limits().wait gets what pull() throws.
  bool may_begin(int worker, bool work);
  /// Waits until the consistency lets the worker pull. PeerError names who was waited for, or says that the worker left meanwhile. `into`
  /// null: it wants no parameters.
  /// `number`: of the minibatch that it will compute, see Server::read(). Returns the server's version.
  std::int64_t pull(int worker, float* into, float rate, std::int64_t number = 0);
  Advice report(int worker, const Report& report, const float* statistics);
  /// A non-finite gradient is refused: dropped, and counted. A duplicate changes nothing and gets the first answer. If another worker's
  /// push came first, a replica rule has no answer for this one: the admission is `dropped` and the worker keeps its parameters.
  Admission push(int worker, float* gradient, const Push& push);
  /// What a pull throws that was not granted within limits().wait; it names whoever computes, or could.
  PeerError overdue(int worker);
  /// A worker has seen that its gradient is not finite, and sends none of it.
  void refuse(int worker, const Push& push = {});
  /// Server 0: a minibatch was assigned to a worker, or is complete on all servers.
  void assign(int worker, std::int64_t number);
  void complete(int worker, const Completed& minibatch);
  /// Whether what the worker computes now will be dropped. Waits for nobody: while the server is busy the answer is no.
  bool in_vain(int worker);

  void join(int worker);
  void leave(int worker);
  /// Its connection broke. If somebody starts it again and updates need everybody, it keeps its place in the round until it is back or was
  /// silent for too long; otherwise it has left. Returns whether it keeps its place.
  bool lose(int worker);
  /// It was lost, or its server was, and it keeps its place.
  bool is_expected(int worker);
  void heard_of(int worker);  // it lives
  /// Workers that were silent for too long leave; returns them. Whoever computes for long tells by heard_of().
  std::vector<int> forget_silent();
  /// The server has the state of another that was lost, and nobody is connected.
  ///
  /// A server that has lost nothing, or is the only one, knows the round (`knows_round`): whoever was in it is waited for, until it comes
  /// back or was silent for too long, and no update is made without it. Otherwise the other servers went on meanwhile, and everybody is
  /// away: whoever comes back takes part again with its next pull, because what it computes now belongs to a round that this server did not
  /// see begin.
  void begin_again(bool knows_round = false);
  /// From now on every event is written there before anybody hears of it. Only within with(), or before anybody comes.
  void write_to(std::unique_ptr<Journal> journal) { journal_ = std::move(journal); }
  /// Starts the first journal of a run. Workers that have joined by now are recorded in it.
  void begin_journal(std::unique_ptr<Journal> journal);
  /// Hears of every event, in their order, one at a time; in the thread of whoever caused it. Before anybody comes.
  void watch(std::function<void(Journal::Kind, int worker)> watcher) { watcher_ = std::move(watcher); }
  /// Nobody waits any more: everyone who does gets `reason` as an error.
  void close(const std::string& reason);

  /// The server, while nothing else happens.
  template <class Body>
  auto with(const Body& body) {
    const std::scoped_lock both(state_, memory_);
    return body(*server_);
  }
  std::int64_t length() const { return server_->length(); }
  const Place& place() const { return server_->place(); }  // where gradients lie
  const Limits& limits() const { return limits_; }
  const Clock& clock() const { return clock_; }

 private:
  struct Presence {
    bool here = false, waits = false;
    bool computes = false;               // it has pulled, and not yet pushed
    std::optional<Nanoseconds> since{};  // it asks whether it may begin
    bool returns = false;                // to a server that has begun again, with its next pull
    bool expected = false;               // it was lost, or its server was, and it keeps its place in the round until it is back
    int changes = 0;                     // how often it came and went
    Nanoseconds heard{0};
  };
  Presence& presence(int worker);
  PeerError refusal(int worker) const;
  bool pulled_elsewhere(int worker);
  void rejoin(int worker);  // where it returns
  /// These require both locks.
  bool is_duplicate(int worker, const Push& push);
  void resume(int worker, const Push& push);
  void refuse_now(int worker, const Push& push);
  template <class... Rest>
  void note(Journal::Kind kind, int worker, const Rest&... rest) {
    if (journal_) journal_->note(kind, worker, rest...);
    if (watcher_) watcher_(kind, worker);
  }
  std::vector<int> awaited(int worker) const;  // for whom a worker may be waiting
  /// Whether a worker that has waited since then stops waiting. Not while whoever it waits for is about to be forgotten, which frees it.
  bool gives_up(int worker, Nanoseconds since) const;
  /// Waits until `condition` holds; false when the clock says `until` first. Holds state_.
  template <class Condition>
  bool wait_until(std::unique_lock<std::mutex>& state, Nanoseconds until, const Condition& condition);
  /// Everybody who is here begins a round at the same time, where nobody computes. Holds state_.
  bool align_rounds(int worker);

  std::unique_ptr<Server> server_;
  Limits limits_;
  std::unique_ptr<Journal> journal_;
  std::function<void(Journal::Kind, int worker)> watcher_;
  const Clock& clock_;
  std::mutex state_;
  std::shared_mutex memory_;
  std::condition_variable changed_;
  std::vector<Presence> presence_;
  bool began_again_ = false;
  std::string closed_;  // why
};

}  // namespace paceline::ps
