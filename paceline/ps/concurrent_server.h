// A thread-safe server for concurrent workers: locks, waits with deadlines, workers that disappear.
//
// If the parameters lie on a GPU, all work on them is ordered by one stream, whichever thread calls: a call returns when its part is done,
// and a worker calls only after its own stream has produced what it pushes.
//
// Two locks: `state_` guards the state machine, `memory_` the parameters. Pulls copy concurrently; a push is exclusive, unless ps.lock_free
// lets it run beside them (server_lock_free.cpp). Code that needs both takes state_ first.
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

/// The number of an observer: it pulls without waiting for permission, and no worker waits for it.
inline constexpr int kObserver = 16383;

class ConcurrentServer {
 public:
  struct Limits {
    Nanoseconds wait = std::chrono::seconds(30);     // a pull that is not granted within this time is a PeerError
    Nanoseconds silence = std::chrono::seconds(30);  // a worker that was silent for this long has left
    bool started_again = false;                      // a launcher restarts lost workers, so that it pays to wait for them
  };

  /// The clock outlives it. A waiting pull polls it, so that a test can advance it.
  ConcurrentServer(std::unique_ptr<Server> server, const Limits& limits, const Clock& clock);

  bool may_pull(int worker);
  /// The same for a worker that polls instead of waiting in pull(). If it has `work` to do but may not pull for limits().wait, this throws
  /// what pull() would.
  bool may_begin(int worker, bool work);
  /// Waits until the consistency lets the worker pull. PeerError names the workers it waited for, or says that it left meanwhile. `into` is
  /// null if it needs no parameters.
  /// `number`: the minibatch that it will compute, see Server::read(). Returns the server's version.
  std::int64_t pull(int worker, float* into, float rate, std::int64_t number = 0);
  Advice report(int worker, const Report& report, const float* statistics);
  /// A non-finite gradient is refused: dropped, and counted. A duplicate changes nothing and gets the first answer. If another worker
  /// pushed this minibatch first, a replica rule has no answer for the second push: the admission is `dropped` and the worker keeps its
  /// parameters.
  Admission push(int worker, float* gradient, const Push& push);
  /// The error of a pull that was not granted within limits().wait; it names the workers that compute, or could.
  PeerError overdue(int worker);
  /// The worker has seen that its gradient is not finite, and does not send it.
  void refuse(int worker, const Push& push = {});
  /// Server 0: minibatches are assigned to workers; called before anyone joins. Without a journal only a worker's own is taken: another
  /// number was assigned by a server that is gone, even if the worker has pulled from this one meanwhile.
  void assigns() { assigns_ = true; }
  /// Server 0: a minibatch was assigned to a worker, or is complete on all servers.
  void assign(int worker, std::int64_t number);
  void complete(int worker, const Completed& minibatch);
  /// Whether what the worker computes now will be dropped. Never blocks: while the server is busy the answer is no.
  bool cancelled(int worker);

  void join(int worker);
  void leave(int worker);
  /// Its connection broke. If a launcher restarts it and updates need every worker, it keeps its place in the round until it is back or was
  /// silent for too long; otherwise it has left. Returns whether it keeps its place.
  bool lose(int worker);
  /// The worker or its server was lost, and the worker keeps its place.
  bool is_expected(int worker);
  void heard_of(int worker);  // it is alive
  /// Removes workers that were silent for too long, and returns them. A worker that computes for a long time calls heard_of().
  std::vector<int> forget_silent();
  /// The server has restored the state of one that was lost, and no worker is connected.
  ///
  /// A server that has lost nothing, or is the only one, knows the round (`knows_round`): it waits for the workers that were in it until
  /// they come back or were silent for too long, and makes no update without them. Otherwise the other servers continued meanwhile, and all
  /// workers count as absent: one that comes back takes part again with its next pull, because what it computes now belongs to a round that
  /// this server did not see begin.
  void begin_again(bool knows_round = false);
  /// From now on every event is written there before it is acknowledged. Call only within with(), or before any worker joins.
  void write_to(std::unique_ptr<Journal> journal) { journal_ = std::move(journal); }
  /// Called with every event, in order, one at a time, in the thread that caused it. Set it before any worker joins.
  void watch(std::function<void(Journal::Kind, int worker)> watcher) { watcher_ = std::move(watcher); }
  /// Ends all waits: each throws `reason` as an error.
  void close(const std::string& reason);

  /// Exclusive access to the server.
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
    bool computes = false;               // it has pulled and not pushed yet
    std::optional<Nanoseconds> since{};  // since when it has asked whether it may begin
    bool returns = false;                // to a restarted server, with its next pull
    bool expected = false;               // it or its server was lost, and it keeps its place in the round until it is back
    int changes = 0;                     // how many times it joined or left
    std::int64_t assigned = 0;           // number of the last minibatch
    Nanoseconds heard{0};
  };
  Presence& presence(int worker);
  PeerError refusal(int worker) const;
  bool pulled_elsewhere(int worker);
  void rejoin(int worker);  // if it returns
  Admission push_without_lock(int worker, const float* gradient, const Push& push, bool usable);
  /// These require that both locks are held.
  bool is_duplicate(int worker, const Push& push);
  void resume(int worker, const Push& push);
  void refuse_now(int worker, const Push& push);
  template <class... Rest>
  void note(Journal::Kind kind, int worker, const Rest&... rest) {
    if (journal_) journal_->note(kind, worker, rest...);
    if (watcher_) watcher_(kind, worker);
  }
  std::vector<int> awaited(int worker) const;  // the workers for which a worker may be waiting
  /// Whether a worker that has waited since then gives up. It does not while a worker that it waits for is about to be forgotten, which
  /// would free it.
  bool gives_up(int worker, Nanoseconds since) const;
  /// Waits until `condition` holds; false if the clock reaches `until` first. Requires state_.
  template <class Condition>
  bool wait_until(std::unique_lock<std::mutex>& state, Nanoseconds until, const Condition& condition);
  /// If no worker computes, all present workers begin a round together. Requires state_.
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
  bool assigns_ = false;  // assign() is called with every minibatch
  std::string closed_;    // why
};

}  // namespace paceline::ps
