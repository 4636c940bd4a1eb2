// The server's side: one thread that polls the ranks and answers what has arrived.
#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/ps/transports/desk.h"
#include "paceline/ps/transports/ranks.h"
#include "paceline/ps/transports/ranks_message.h"

namespace paceline::ps {
namespace {

using wire::Verb;

constexpr Nanoseconds kForever = std::chrono::hours(24 * 365);     // a worker may compute this long before its next request
constexpr Nanoseconds kTaskWait = std::chrono::milliseconds(200);  // a request for work may stay at its desk this long
constexpr Nanoseconds kShortestNap = std::chrono::microseconds(10), kLongestNap = std::chrono::microseconds(100);
constexpr int kYields = 20;  // before the first nap

/// One rank that may send requests.
struct Caller {
  enum class Stage { listening, receiving, waiting, answering, gone };

  int rank = 0;
  Stage stage = Stage::listening;
  Envelope asked = {}, answered = {};
  comm::Work head = {}, payload = {};  // in flight, in or out
  std::string request = {};            // the head that is being answered
  std::string text = {};               // of a worker that joins, or why it is refused
  bool refused = false;                // after the answer in flight, the caller gets no other
  Nanoseconds since{0};                // when the request began to wait
  std::unique_ptr<Desk> desk = {};     // once it has joined
};

class RankServer final : public Service {
 public:
  RankServer(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
             const ServiceOptions& options);

  std::vector<int> workers() const override;
  bool deserted() const override;

 private:
  using Stage = Caller::Stage;

  void work(const std::stop_token& stop);
  bool advance(Caller& caller);  // true: there was progress
  void listen(Caller& caller);
  void receive(Caller& caller);
  void refuse(Caller& caller, const DataError& why);
  bool answer(Caller& caller);  // true: there was an answer
  void send(Caller& caller, const Desk::Reply& reply);
  Desk::Reply join(Caller& caller);
  void leave(Caller& caller);
  /// The deadline of a message that has begun.
  comm::Options deadline() const { return {.deadline = concurrent_->limits().silence}; }

  std::shared_ptr<comm::Communicator> ranks_;
  int servers_;
  std::shared_ptr<ConcurrentServer> concurrent_;
  ArenaLayout layout_;
  ServiceOptions options_;
  std::vector<Caller> callers_;
  mutable std::mutex mutex_;
  std::vector<int> present_;    // workers, guarded
  std::size_t expected_ = 0;    // ranks that have not left, guarded; observers count once they have joined
  std::exception_ptr problem_;  // guarded
  std::jthread thread_;         // last: it uses everything above
};

RankServer::RankServer(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
                       const ServiceOptions& options)
    : ranks_(cluster.ranks),
      servers_(static_cast<int>(cluster.servers.size())),
      concurrent_(std::move(concurrent)),
      layout_(layout),
      options_(options) {
  if (options_.end < 0) options_.end = layout_.length;
  check_service(*concurrent_, options_);
  // Server 0 reads the other servers' parameters.
  for (int rank = 0; rank < ranks_->size(); ++rank)
    if (rank >= servers_ || (rank == 0 && ranks_->rank() != 0)) callers_.push_back({.rank = rank});
  expected_ = static_cast<std::size_t>(ranks_->size() - servers_);
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

std::vector<int> RankServer::workers() const {
  const std::scoped_lock lock(mutex_);
  return present_;
}

bool RankServer::deserted() const {
  const std::scoped_lock lock(mutex_);
  if (expected_ == 0) return true;  // from now on, a rank may exit without error
  if (problem_) std::rethrow_exception(problem_);
  return false;
}

void RankServer::work(const std::stop_token& stop) {
  try {
    for (Caller& caller : callers_) listen(caller);
    int idle = 0;
    for (Nanoseconds nap = kShortestNap; !stop.stop_requested();) {
      bool any = false;
      for (Caller& caller : callers_) any = advance(caller) || any;
      if (any) idle = 0, nap = kShortestNap;
      else if (++idle <= kYields) std::this_thread::yield();
      else std::this_thread::sleep_for(std::exchange(nap, std::min(2 * nap, kLongestNap)));
    }
  } catch (const std::exception& error) {
    log::error("server {} has stopped serving: {}", ranks_->rank(), error.what());
    {
      const std::scoped_lock lock(mutex_);
      problem_ = std::current_exception();
    }
    if (options_.failed) options_.failed(std::current_exception());
  }
  for (const Caller& caller : callers_) caller.head.abandon(), caller.payload.abandon();  // their memory is about to be freed
}

bool RankServer::advance(Caller& caller) {
  if (caller.stage == Stage::gone || !caller.head.done() || !caller.payload.done()) return false;
  try {
    caller.head.wait(), caller.payload.wait();  // throws if the operation failed
  } catch (const PeerError&) {
    if (!caller.refused) throw;  // a refused rank may have stopped listening
  }
  switch (caller.stage) {
    case Stage::listening: return receive(caller), true;
    case Stage::receiving: caller.since = concurrent_->clock().now(), caller.stage = Stage::waiting; [[fallthrough]];
    case Stage::waiting: return answer(caller);
    default: break;
  }
  if (caller.refused || wire::unpack_head(caller.request).verb == Verb::leave) leave(caller);
  else listen(caller);
  return true;
}

void RankServer::listen(Caller& caller) {
  caller.stage = Stage::listening;
  caller.payload = {};
  caller.head = ranks_->start(comm::receive(caller.asked.buffer(), caller.rank, kAsk, {.deadline = kForever}));
}

void RankServer::receive(Caller& caller) {
  caller.stage = Stage::receiving;
  std::span<std::byte> room;
  try {
    caller.request = caller.asked.get();
    const wire::Head head = wire::unpack_head(caller.request);
    if (head.verb == Verb::join) {
      wire::expect_text(head.payload, longest_introduction(layout_, options_));
      caller.text.resize(static_cast<std::size_t>(head.payload));
      room = std::as_writable_bytes(std::span(caller.text));
    } else if (caller.desk) {
      room = caller.desk->room_for(caller.request);
    } else {
      throw DataError("a worker's message", fmt::format("rank {} sent a request before it joined", caller.rank));
    }
  } catch (const DataError& error) {
    return refuse(caller, error);
  }
  if (!room.empty()) caller.payload = ranks_->start(comm::receive(buffer_of(room), caller.rank, kAskPayload, deadline()));
}

/// A worker that violates the protocol gets an error and counts as having left; the others continue.
void RankServer::refuse(Caller& caller, const DataError& why) {
  log::warning("server {} refuses rank {}: {}", ranks_->rank(), caller.rank, why.what());
  wire::FailureMessage message = wire::pack_failure(why);
  caller.text = std::move(message.payload), caller.refused = true;
  send(caller, {message.head, std::as_bytes(std::span(caller.text))});
}

bool RankServer::answer(Caller& caller) {
  const Verb verb = wire::unpack_head(caller.request).verb;
  if (verb == Verb::join) return send(caller, join(caller)), true;
  Desk& desk = *caller.desk;
  const Nanoseconds waited = concurrent_->clock().now() - caller.since;
  if (verb == Verb::pull && desk.worker() != kObserver && !concurrent_->may_pull(desk.worker())) {
    if (waited < concurrent_->limits().wait) return false;
    return send(caller, desk.failure(concurrent_->overdue(desk.worker()))), true;
  }
  const Desk::Reply reply = desk.answer(caller.request);
  const bool later = verb == Verb::next && wire::unpack_head(reply.head).verb == Verb::next &&
                     wire::unpack<wire::Next>(reply.head).kind == wire::Next::later;
  if (later && waited < kTaskWait) return false;
  return send(caller, reply), true;
}

void RankServer::send(Caller& caller, const Desk::Reply& reply) {
  caller.stage = Stage::answering;
  caller.answered.put(reply.head);
  caller.head = ranks_->start(comm::send(caller.answered.buffer(), caller.rank, kAnswer, deadline()));
  caller.payload = {};
  if (!reply.payload.empty()) caller.payload = ranks_->start(comm::send(buffer_of(reply.payload), caller.rank, kAnswerPayload, deadline()));
}

Desk::Reply RankServer::join(Caller& caller) {
  const bool looks = caller.rank < servers_;
  caller.desk = std::make_unique<Desk>(*concurrent_, layout_, options_, looks ? kObserver : caller.rank - servers_);
  try {
    check_alike(wire::unpack<wire::Join>(caller.request), caller.text, layout_, options_);
  } catch (const Error& error) {
    return caller.desk->failure(error);
  }
  concurrent_->join(caller.desk->worker());
  const std::scoped_lock lock(mutex_);
  if (looks) ++expected_;
  else present_.push_back(caller.desk->worker());
  return {wire::pack(Verb::join, welcome(caller.desk->worker(), *concurrent_, options_)), {}};
}

void RankServer::leave(Caller& caller) {
  const bool looks = caller.rank < servers_;
  const int worker = looks ? kObserver : caller.rank - servers_;
  caller.stage = Stage::gone;
  if (!looks) concurrent_->leave(worker);
  if (caller.desk && caller.desk->task() && options_.task_lost) options_.task_lost(worker, *caller.desk->task());
  const std::scoped_lock lock(mutex_);
  std::erase(present_, worker);
  if (!looks || caller.desk) --expected_;
}

}  // namespace

std::unique_ptr<Service> serve_ranks(const Cluster& cluster, std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout,
                                     const ServiceOptions& options) {
  return std::make_unique<RankServer>(cluster, std::move(concurrent), layout, options);
}

}  // namespace paceline::ps
