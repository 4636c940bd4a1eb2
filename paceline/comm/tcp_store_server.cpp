#include "paceline/comm/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "paceline/base/log.h"
#include "paceline/base/process_state.h"
#include "paceline/comm/tcp_store_connection.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using wire::Reply;

constexpr int kMaxArrived = 64;               // peers that know the key and have not said who they are
constexpr Nanoseconds kHelloTime = 2s;        // for an admitted peer to say who it is
constexpr Nanoseconds kNews = 2s;             // between two log lines about how many ranks have connected
constexpr Nanoseconds kFarewell = 1s;         // for clients to leave before the server does
constexpr int kLookMs = 100;                  // between two checks for silent ranks
constexpr std::size_t kReadBytes = 64 << 10;  // at a time

}  // namespace

StoreServer::StoreServer(Socket listener, const std::string& key, wire::Hello host, bool one_host)
    : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), host_(std::move(host)), one_host_(one_host), news_(kNews) {
  if (!wake_) throw std::system_error(errno, std::system_category(), "eventfd");
  reception_.emplace(std::move(listener), key, kForStore, [this](Socket socket, const std::string&) { arrive(std::move(socket)); });
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

Socket StoreServer::connect() {
  auto [ours, theirs] = socket_pair();
  arrive(std::move(theirs));
  return std::move(ours);
}

void StoreServer::arrive(Socket socket) {
  {
    const std::lock_guard lock(mutex_);
    arriving_.push_back(std::move(socket));
  }
  ::eventfd_write(wake_.get(), 1);
}

void StoreServer::serve() {
  std::optional<Deadline> farewell;
  for (;;) {
    std::vector<Socket> arriving;
    {
      const std::lock_guard lock(mutex_);
      std::swap(arriving, arriving_);
      if (stop_ && !farewell) farewell.emplace(kFarewell);
    }
    for (Socket& socket : arriving) admit(std::move(socket));
    const int lost = silence_.loss() ? silence_.loss()->rank : -1;
    const bool alone = std::ranges::none_of(connections_, [&](const Connection& each) { return each.rank >= 0 && each.rank != lost; });
    if (farewell && (alone || farewell->passed())) return;
    const int timeout = next_timeout_ms();
    poll_once(!farewell ? timeout : timeout < 0 ? farewell->poll_ms() : std::min(timeout, farewell->poll_ms()));
    excuse_busy();
    silence_.look(SteadyClock().now());
    expire();
    drop_closed();
    settle_accusations();
    if (is_gathering() && news_.passed()) {
      log::info("{} of {} ranks have connected", peers_.size(), host_.size);
      news_ = Deadline(kNews);
    }
  }
}

/// On a host without a free core a rank may not manage to beat in time, though nothing is wrong with it.
void StoreServer::excuse_busy() {
  for (const auto& [rank, peer] : peers_) {
    if (!silence_.is_quiet(rank) || peer.hello.host_id != host_.host_id) continue;
    if (const auto state = process_state(peer.hello.pid); state && state->runs()) silence_.excuse(rank);
  }
}

int StoreServer::next_timeout_ms() const {
  int soonest = is_gathering() ? news_.poll_ms() : -1;
  if (silence_.watches()) soonest = soonest < 0 ? kLookMs : std::min(soonest, kLookMs);
  for (const Connection& connection : connections_)
    if (connection.until) soonest = soonest < 0 ? connection.until->poll_ms() : std::min(soonest, connection.until->poll_ms());
  return soonest;
}

void StoreServer::poll_once(int timeout_ms) {
  std::vector<pollfd> entries;
  for (const Connection& connection : connections_)
    entries.push_back({connection.socket.get(), static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  entries.push_back({wake_.get(), POLLIN, 0});
  if (::poll(entries.data(), entries.size(), timeout_ms) <= 0) return;

  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (entries[i].revents & (POLLIN | POLLHUP | POLLERR)) connection.closed = connection.closed || !receive(connection);
  }
  // A request may answer several clients (a key that others wait for), so every connection with something to send is served.
  for (Connection& connection : connections_)
    if (!connection.closed && !connection.out.empty()) connection.closed = !send_pending(connection);
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
}

void StoreServer::admit(Socket socket) {
  const auto says_nothing = [](const Connection& connection) { return connection.state == Connection::State::arrived; };
  if (std::ranges::count_if(connections_, says_nothing) >= kMaxArrived)
    connections_.erase(std::ranges::find_if(connections_, says_nothing));
  Connection arrived;
  arrived.socket = std::move(socket);
  arrived.until.emplace(kHelloTime);
  connections_.push_back(std::move(arrived));
}

bool StoreServer::receive(Connection& connection) {
  char bytes[kReadBytes];
  const ssize_t got = ::recv(connection.socket.get(), bytes, sizeof(bytes), 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  connection.in.append(bytes, static_cast<std::size_t>(got));

  // One request at a time: a client that sends more before it has its answer is not one of ours, and both buffers stay bounded.
  const bool busy = connection.busy() || !connection.out.empty();
  if (busy || connection.in.size() < wire::kHeaderBytes) return !busy;
  const std::size_t length = wire::frame_length(connection.in);
  if (length > (connection.state == Connection::State::arrived ? wire::kMaxHello : wire::kMaxFrame)) return false;
  if (connection.in.size() < wire::kHeaderBytes + length) return true;
  if (connection.in.size() > wire::kHeaderBytes + length) return false;
  const std::string frame = std::exchange(connection.in, {});
  return handle(connection, std::string_view(frame).substr(wire::kHeaderBytes));
}

bool StoreServer::send_pending(Connection& connection) {
  const ssize_t sent = ::send(connection.socket.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.out.erase(0, static_cast<std::size_t>(sent));
  return true;
}

void StoreServer::expire() {
  for (Connection& connection : connections_) {
    if (connection.closed || !connection.until || !connection.until->passed()) continue;
    switch (connection.state) {
      case Connection::State::arrived: connection.closed = true; break;
      case Connection::State::waiting: connection.reply({Reply::Status::none, 0, ""}); break;
      case Connection::State::joining: fail_all(late()); break;
      case Connection::State::accusing:  // settle_accusations() answers
      case Connection::State::idle: break;
    }
  }
}

void StoreServer::drop_closed() {
  for (const Connection& connection : connections_) {
    if (!connection.closed || connection.rank < 0) continue;
    if (connection.beats) silence_.forget(connection.rank);
    Peer& peer = peers_.at(connection.rank);
    if (--peer.connections > 0 || complete_ || fault_.status != Reply::Status::ok) continue;
    fail_all({Reply::Status::lost, connection.rank, peer.hello.who() + " left before all ranks had connected"});
  }
  std::erase_if(connections_, [](const Connection& connection) { return connection.closed; });
}

}  // namespace paceline::comm
