#include "paceline/comm/tcp_store_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "paceline/base/log.h"
#include "paceline/base/process_state.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using wire::Reply;

constexpr std::size_t kMaxStored = 64 << 20;
constexpr int kMaxConnections = 32;           // of one rank
constexpr int kMaxArrived = 64;               // that know the key and have not said who they are
constexpr Nanoseconds kHelloTime = 2s;        // in which whoever was let in says who it is
constexpr Nanoseconds kNews = 2s;             // between two lines about how many ranks have come
constexpr Nanoseconds kFarewell = 1s;         // in which clients may leave before the server does
constexpr int kLookMs = 100;                  // between two looks at who is silent
constexpr std::size_t kReadBytes = 64 << 10;  // at a time

}  // namespace

struct StoreServer::Connection {
  enum class State { arrived, idle, waiting, joining, accusing };

  Socket socket;
  State state = State::arrived;
  int rank = -1;
  std::string in, out;
  std::string key;                // waiting: for whom
  std::optional<Deadline> until;  // of a hello, a wait, a join, an accusation
  int culprit = -1;               // accusing: as far as is known
  bool accused_is_gone = false;   // accusing: the one that it accuses
  bool beats = false;
  bool closed = false;

  bool busy() const { return state != State::arrived && state != State::idle; }

  void reply(const Reply& with) {
    out += wire::frame(wire::encode(with));
    state = State::idle;
    until.reset();
  }
};

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
      log::info("{} of {} ranks have come", peers_.size(), host_.size);
      news_ = Deadline(kNews);
    }
  }
}

/// On a host without a free core a rank may not get to beat in time, though nothing is wrong with it.
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
  // An answer to one may be an answer to many (a key that others wait for), so all that have something to send are tried.
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

bool StoreServer::handle(Connection& connection, std::string_view payload) {
  if (connection.state == Connection::State::arrived) return greet(connection, payload);
  const std::optional<wire::Request> request = wire::decode_request(payload);
  if (request) answer(connection, *request);
  return request.has_value();
}

bool StoreServer::greet(Connection& connection, std::string_view payload) {
  const std::optional<wire::Hello> hello = wire::decode_hello(payload);
  if (!hello) return false;
  if (const Reply no = objection(*hello); no.status != Reply::Status::ok) {
    connection.reply(no);
    send_pending(connection);
    if (!complete_) fail_all(no);
    return false;
  }
  Peer& peer = peers_[hello->rank];
  peer.hello = *hello;
  ++peer.connections;
  connection.rank = hello->rank;
  connection.reply({});
  if (static_cast<int>(peers_.size()) == host_.size && !complete_) {
    complete_ = true;
    for (Connection& other : connections_)
      if (other.state == Connection::State::joining) other.reply({});
  }
  return true;
}

Reply StoreServer::objection(const wire::Hello& hello) const {
  const auto refuse = [](std::string text) { return Reply{Reply::Status::refused, 0, std::move(text)}; };
  if (fault_.status != Reply::Status::ok) return fault_;
  if (hello.size != host_.size)
    return refuse(fmt::format("{} was started as one of {} ranks, but {} as one of {}; start all ranks with the same WORLD_SIZE",
                              hello.who(), hello.size, host_.who(), host_.size));
  if (hello.rank < 0 || hello.rank >= host_.size)
    return refuse(fmt::format("{} is not among the ranks 0 to {} of {}", hello.who(), host_.size - 1, host_.who()));
  if (one_host_ && hello.host_id != host_.host_id)
    return refuse(
        fmt::format("{} and {} are on different hosts (or in different containers), but the store's address reaches one host alone; "
                    "set MASTER_ADDR to an address of rank 0's host that the others can reach, and LOCAL_WORLD_SIZE to the ranks of a host",
                    host_.who(), hello.who()));
  if (hello.one_host() != host_.one_host())
    return refuse(
        fmt::format("{} was told that {} of the {} ranks are on its host, but {} that {} are on its own; set LOCAL_WORLD_SIZE of every "
                    "rank to the ranks of its host",
                    hello.who(), hello.local_size, hello.size, host_.who(), host_.local_size));
  const auto known = peers_.find(hello.rank);
  const wire::Hello* namesake = hello.rank == 0 ? &host_ : known == peers_.end() ? nullptr : &known->second.hello;
  if (namesake != nullptr && namesake->instance != hello.instance)
    return refuse(
        fmt::format("{} and {} are both rank {} of the same job; give every process a RANK of its own, or, if these are two jobs, "
                    "another MASTER_PORT to one of them",
                    namesake->who(), hello.who(), hello.rank));
  if (known != peers_.end() && known->second.connections >= kMaxConnections)
    return refuse(hello.who() + " has too many connections to the store");
  return {};
}

void StoreServer::answer(Connection& connection, const wire::Request& request) {
  if (fault_.status != Reply::Status::ok) return connection.reply(fault_);
  const auto park = [&](Connection::State state) {
    connection.state = state;
    connection.key = request.key;
    connection.until.emplace(Nanoseconds(request.number));
  };
  switch (request.op) {
    case wire::Op::set:
    case wire::Op::add: {
      const Reply done = change(request);
      connection.reply(done);
      if (done.status == Reply::Status::ok) release(request.key);
      return;
    }
    case wire::Op::get:
    case wire::Op::wait: {
      const std::optional<std::string> value = values_->get(request.key);
      if (value) return connection.reply({Reply::Status::ok, 0, *value});
      if (request.op == wire::Op::get) return connection.reply({Reply::Status::none, 0, ""});
      return park(Connection::State::waiting);
    }
    case wire::Op::join: return complete_ ? connection.reply({}) : park(Connection::State::joining);
    case wire::Op::beat:
      silence_.beat(connection.rank, Nanoseconds(request.number));
      connection.beats = true;
      return connection.reply({Reply::Status::ok, 0, verdict()});
    case wire::Op::blame:
      accusations_.accuse(connection.rank, static_cast<int>(request.number));
      connection.culprit = -1;
      connection.accused_is_gone = request.value == "gone";
      return park(Connection::State::accusing);
  }
}

std::string StoreServer::verdict() const {
  const Loss loss = silence_.loss().value_or(Loss{});
  return fmt::format("{} {} {}", loss.rank, loss.silent.count(), cause_);
}

/// A rank that lives may be about to say whom it waits for itself, so its accuser waits for that; one that is gone or lost says no more.
void StoreServer::settle_accusations() {
  const auto says_no_more = [&](int rank) {
    const auto peer = peers_.find(rank);
    return peer == peers_.end() || peer->second.connections == 0;
  };
  for (Connection& connection : connections_) {
    if (connection.state != Connection::State::accusing || connection.closed) continue;
    const auto [culprit, circle] = accusations_.follow(connection.rank);
    const bool direct = accusations_.accused(connection.rank) == culprit;
    const bool grew = std::exchange(connection.culprit, culprit) != culprit;
    const bool certain = circle || says_no_more(culprit) || (direct && connection.accused_is_gone);
    if (silence_.loss()) connection.reply({Reply::Status::ok, cause_ = silence_.loss()->rank, verdict()});
    else if (certain || (!grew && connection.until->passed())) connection.reply({Reply::Status::ok, cause_ = culprit, ""});
    else if (grew) connection.until.emplace(kAccusationTime);
  }
}

Reply StoreServer::change(const wire::Request& request) {
  const std::optional<std::string> before = values_->get(request.key);
  const std::size_t freed = before ? request.key.size() + before->size() : 0;
  const std::size_t taken = request.key.size() + (request.op == wire::Op::set ? request.value.size() : 20);  // 20: digits of a counter
  if (stored_bytes_ - freed + taken > kMaxStored)
    return {Reply::Status::refused, 0, fmt::format("the store is full: it holds {} MiB at most", kMaxStored >> 20)};
  Reply done;
  try {
    if (request.op == wire::Op::set) values_->set(request.key, request.value);
    else done.number = values_->add(request.key, request.number);
  } catch (const ConfigError& error) {
    return {Reply::Status::refused, 0, error.what()};
  }
  stored_bytes_ += request.key.size() + values_->get(request.key)->size() - freed;
  return done;
}

void StoreServer::release(const std::string& key) {
  const Reply value{Reply::Status::ok, 0, values_->get(key).value_or("")};
  for (Connection& other : connections_)
    if (other.state == Connection::State::waiting && other.key == key) other.reply(value);
}

void StoreServer::fail_all(Reply why) {
  fault_ = std::move(why);
  for (Connection& connection : connections_)
    if (connection.busy()) connection.reply(fault_);
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

Reply StoreServer::late() const {
  constexpr std::size_t kShown = 8;
  std::vector<int> missing;
  for (int rank = 0; rank < host_.size; ++rank)
    if (!peers_.contains(rank)) missing.push_back(rank);
  std::string names =
      fmt::format("{}", fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(std::min(missing.size(), kShown)), ", "));
  if (missing.size() > kShown) names += fmt::format(" and {} more", missing.size() - kShown);
  return {
      Reply::Status::lost, missing.front(),
      fmt::format(
          "only {} of {} ranks came to rank 0 in time; missing: {}; look at what they say, or why they were not started; where they need "
          "longer, raise comm.deadline_s",
          peers_.size(), host_.size, names)};
}

void StoreServer::drop_closed() {
  for (const Connection& connection : connections_) {
    if (!connection.closed || connection.rank < 0) continue;
    if (connection.beats) silence_.forget(connection.rank);
    Peer& peer = peers_.at(connection.rank);
    if (--peer.connections > 0 || complete_ || fault_.status != Reply::Status::ok) continue;
    fail_all({Reply::Status::lost, connection.rank, peer.hello.who() + " left before all ranks had come"});
  }
  std::erase_if(connections_, [](const Connection& connection) { return connection.closed; });
}

}  // namespace paceline::comm
