#include "paceline/comm/tcp_store.h"

#include <fmt/format.h>
#include <poll.h>

#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#include "paceline/base/log.h"
#include "paceline/comm/handshake.h"
#include "paceline/comm/heartbeat.h"
#include "paceline/comm/tcp_store_server.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using wire::Op;
using wire::Reply;

constexpr Nanoseconds kStrangerTime = 1500ms;  // how long a stranger may hold our address: it may be a job that is about to end
constexpr Nanoseconds kProbeTime = 500ms;      // to find out who holds an address that is in use on this host
constexpr Nanoseconds kPushedOutTime = 5s, kRetryPause = 20ms;      // for a connection that a flood displaces at the reception
constexpr Nanoseconds kSlack = 1s;                                  // the server ends a wait; the client does so only if the server is gone
constexpr Nanoseconds kLossLook = 100ms;                            // between two checks for a lost rank, while waiting
constexpr Nanoseconds kVerdictTime = 3 * kAccusationTime + kSlack;  // enough for ranks that were only waiting themselves to say so

[[noreturn]] void raise(const Reply& reply) {
  if (reply.status == Reply::Status::lost) throw PeerError(static_cast<int>(reply.number), "rendezvous", 0, reply.text);
  throw ConfigError(reply.text);
}

void say_hello(const Socket& socket, const StoreJob& job, const Deadline& deadline) {
  send_all(socket, wire::frame(wire::encode(job.hello)), deadline);
  if (const Reply reply = receive_reply(socket, deadline); reply.status != Reply::Status::ok) raise(reply);
}

/// Introduces this rank on a fresh connection. Throws StrangerError if the other end is not one of ours.
void introduce(const Socket& socket, const StoreJob& job, const Deadline& deadline) {
  authenticate(socket, job.key, kForStore, deadline);
  say_hello(socket, job, deadline);
}

class TcpStore final : public Store {
 public:
  using Connect = std::function<Socket(const Deadline&)>;  // a connection that is already introduced

  TcpStore(Connect connect, Socket first, std::string where) : connect_(std::move(connect)), where_(std::move(where)) {
    idle_.push_back(std::move(first));
  }

  void set(const std::string& key, const std::string& value, Nanoseconds deadline) override { call({Op::set, key, value, 0}, deadline); }

  std::optional<std::string> get(const std::string& key, Nanoseconds deadline) override {
    return value_of(call({Op::get, key, {}, 0}, deadline));
  }

  std::optional<std::string> wait(const std::string& key, Nanoseconds deadline) override {
    return value_of(call({Op::wait, key, {}, deadline.count()}, deadline + kSlack));
  }

  std::int64_t add(const std::string& key, std::int64_t amount, Nanoseconds deadline) override {
    return call({Op::add, key, {}, amount}, deadline).number;
  }

  void start_heartbeat(Nanoseconds limit) override { heartbeat_.emplace(connect_(Deadline(kStoreDeadline)), limit); }
  std::optional<Loss> loss() const override { return heartbeat_ ? heartbeat_->loss() : std::nullopt; }
  std::optional<int> cause() const override { return heartbeat_ ? heartbeat_->cause() : std::nullopt; }
  int culprit(int, int accused, bool is_gone) override {
    const Reply reply = call({Op::blame, {}, is_gone ? "gone" : "", accused}, kVerdictTime);
    if (heartbeat_) heartbeat_->hear(reply.text);
    return static_cast<int>(reply.number);
  }

  void join(Nanoseconds deadline) { call({Op::join, {}, {}, deadline.count()}, deadline + kSlack); }

 private:
  static std::optional<std::string> value_of(const Reply& reply) {
    return reply.status == Reply::Status::ok ? std::optional(reply.text) : std::nullopt;
  }

  /// A connection that no other thread uses: a wait must not block a set.
  Socket take(const Deadline& deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Socket socket = std::move(idle_.back());
        idle_.pop_back();
        return socket;
      }
    }
    return connect_(deadline);
  }

  /// Throws if no answer can come any more: rank 0 was lost, or, when waiting for a key, a rank was lost that may have been about to set
  /// it.
  void check_loss(const wire::Request& request) const {
    if (const std::optional<Loss> lost = loss(); lost && (lost->rank == 0 || request.op == Op::wait))
      throw PeerSilent(lost->rank, "store", 0, fmt::format("rank {} {}", lost->rank, lost->text()), lost->silent);
  }

  void await_reply(const Socket& socket, const Deadline& until, const wire::Request& request) const {
    pollfd entry{socket.get(), POLLIN, 0};
    while (!until.passed() && ::poll(&entry, 1, until.or_sooner(kLossLook).poll_ms()) <= 0) check_loss(request);
  }

  Reply call(const wire::Request& request, Nanoseconds deadline) {
    const std::string payload = wire::encode(request);
    if (payload.size() > wire::kMaxFrame)
      throw ConfigError(fmt::format("a key and its value may have at most {} bytes together in the store, not {} ('{:.40}')",
                                    wire::kMaxFrame, payload.size(), request.key));
    check_loss(request);
    try {
      const Deadline until(deadline);
      Socket socket = take(until);
      send_all(socket, wire::frame(payload), until);
      await_reply(socket, until, request);
      Reply reply = receive_reply(socket, until);
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(socket));
      if (reply.status == Reply::Status::ok || reply.status == Reply::Status::none) return reply;
      raise(reply);
    } catch (const std::system_error& error) {
      throw PeerError(0, "store", 0,
                      fmt::format("rank 0, which serves the store at {}, is gone or does not answer ({})", where_, error.code().message()));
    } catch (const StrangerError& error) {
      throw PeerError(0, "store", 0,
                      fmt::format("rank 0, which served the store at {}, is gone; at this address there is now {}", where_, error.what()));
    }
  }

  Connect connect_;  // before the connections: it may own the server, and they must close first
  const std::string where_;
  std::mutex mutex_;
  std::vector<Socket> idle_;
  std::optional<Heartbeat> heartbeat_;
};

/// Listens at the first candidate that is free. If this very job holds one, its server says which rank is already there.
std::pair<Socket, SocketAddress> listen_at_first(const StoreJob& job) {
  for (const SocketAddress& endpoint : job.candidates) {
    try {
      return {listen_at(endpoint), endpoint};
    } catch (const std::system_error& error) {
      if (error.code() == std::errc::address_not_available)
        throw ConfigError(
            fmt::format("{} is not an address of rank 0's host ({}); set MASTER_ADDR to one that is", endpoint.name, job.hello.host_name));
      if (error.code() != std::errc::address_in_use)
        throw ConfigError(fmt::format("rank 0 cannot listen at {}: {}; choose another MASTER_PORT", endpoint.name, error.code().message()));
    }
    try {
      const Deadline deadline(kProbeTime);
      introduce(dial(endpoint, deadline), job, deadline);
    } catch (const std::system_error&) {
    } catch (const StrangerError&) {
    }
  }
  const std::string last = job.candidates.size() > 1 ? " (and up to " + job.candidates.back().name + ")" : "";
  throw ConfigError(fmt::format(
      "{}{} is in use by another program; choose another port with MASTER_PORT=… or --master-port, or leave it to `paceline run`",
      job.candidates.front().name, last));
}

struct Try {
  Socket socket;  // none: no rank of ours is there yet
  SocketAddress endpoint;
  std::string why;        // not
  bool stranger = false;  // another program is there
};

/// Dials an address at which rank 0 may not listen yet. Throws StrangerError if it never can: another program holds it and does not listen.
Socket dial_store(const SocketAddress& endpoint, const Deadline& deadline) {
  try {
    return dial(endpoint, deadline);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::connection_refused || endpoint.address.ss_family == AF_UNIX ||
        obstacle_at(endpoint) != std::errc::address_in_use)
      throw;
  }
  try {
    return dial(endpoint, deadline);  // it may have been rank 0, which arrived in between
  } catch (const std::system_error&) {
    throw StrangerError("in use by another program that does not listen");
  }
}

/// Tries every candidate once.
Try try_candidates(const StoreJob& job, const Deadline& deadline) {
  Try result;
  for (const SocketAddress& endpoint : job.candidates) {
    result.endpoint = endpoint;
    try {
      const Deadline limit =
          job.candidates.size() > 1 ? deadline.or_sooner(1s) : deadline;  // a silent candidate must not hide the next one
      Socket socket = dial_store(endpoint, limit);
      introduce(socket, job, limit);
      result.socket = std::move(socket);
      return result;
    } catch (const std::system_error& error) {
      result.why = error.code().message();
    } catch (const StrangerError& error) {
      result.why = fmt::format("{} is {}", endpoint.name, error.what());
      result.stranger = true;
    }
  }
  return result;
}

/// Connects to where rank 0 was found before. Tries again if a flood of strangers displaces this rank at the reception.
Socket connect_again(const SocketAddress& endpoint, const StoreJob& job, const Deadline& deadline) {
  for (const Deadline patience = deadline.or_sooner(kPushedOutTime);;) {
    try {
      Socket socket = dial(endpoint, deadline);
      introduce(socket, job, deadline);
      return socket;
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::connection_reset || patience.passed()) throw;
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

/// Rank 0 refuses any rank that finds it there, and says why.
void try_elsewhere(const StoreJob& job, const Deadline& deadline) {
  for (const SocketAddress& endpoint : job.elsewhere()) {
    try {
      const Deadline limit = deadline.or_sooner(kProbeTime);
      introduce(dial(endpoint, limit), job, limit);
    } catch (const std::system_error&) {
    } catch (const StrangerError&) {
    }
  }
}

}  // namespace

Reply receive_reply(const Socket& socket, const Deadline& deadline) {
  const std::size_t length = wire::frame_length(receive_exactly(socket, wire::kHeaderBytes, deadline));
  if (length > wire::kMaxFrame + wire::kMaxHello) throw std::system_error(EPROTO, std::system_category());
  const std::optional<Reply> reply = wire::decode_reply(receive_exactly(socket, length, deadline));
  if (!reply) throw std::system_error(EPROTO, std::system_category());
  return *reply;
}

std::shared_ptr<Store> serve_store(const StoreJob& job, Nanoseconds deadline) {
  auto [listener, endpoint] = listen_at_first(job);
  if (endpoint.address.ss_family != AF_UNIX) log::info("rank 0 serves the store at {}", endpoint.name);
  const auto server = std::make_shared<StoreServer>(std::move(listener), job.key, job.hello, endpoint.is_loopback());
  const auto connect = [server, job](const Deadline& until) {
    Socket socket = server->connect();
    say_hello(socket, job, until);
    return socket;
  };
  const auto store = std::make_shared<TcpStore>(connect, connect(Deadline(deadline)), endpoint.name);
  store->join(deadline);
  return store;
}

std::shared_ptr<Store> reach_store(const StoreJob& job, Nanoseconds deadline) {
  const Deadline until(deadline), patience(kStrangerTime);
  Try found = try_candidates(job, until);
  for (Nanoseconds pause = 10ms; !found.socket; pause = std::min<Nanoseconds>(2 * pause, 200ms)) {
    if (found.stranger && job.candidates.size() == 1 && patience.passed())
      throw ConfigError(
          fmt::format("{}; choose another port with MASTER_PORT=… or --master-port, or leave it to `paceline run`", found.why));
    if (!found.stranger && patience.passed()) try_elsewhere(job, until);
    if (until.passed())
      throw PeerError(
          0, "rendezvous", 0,
          fmt::format(
              "{} could not reach rank 0 at {} within {:.0f} s ({}); check that rank 0 is running and that this host can reach the address",
              job.hello.who(), job.candidates.front().name, seconds(deadline), found.why));
    std::this_thread::sleep_for(std::min(pause, until.left()));
    found = try_candidates(job, until);
  }
  const auto connect = [job, endpoint = found.endpoint](const Deadline& limit) { return connect_again(endpoint, job, limit); };
  const auto store = std::make_shared<TcpStore>(connect, std::move(found.socket), found.endpoint.name);
  store->join(until.left());
  return store;
}

}  // namespace paceline::comm
