// What the store's server answers: who may join, what is stored, and who is to blame. tcp_store_server.cpp has its connections.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "paceline/comm/tcp_store_connection.h"

namespace paceline::comm {
namespace {

using wire::Reply;

constexpr std::size_t kMaxStored = 64 << 20;
constexpr int kMaxConnections = 32;  // per rank

}  // namespace

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
    return refuse(fmt::format(
        "{} and {} are on different hosts (or in different containers), but only one host can reach the store's address; set MASTER_ADDR "
        "to an address of rank 0's host that the others can reach, and LOCAL_WORLD_SIZE to the number of ranks per host",
        host_.who(), hello.who()));
  if (hello.one_host() != host_.one_host())
    return refuse(
        fmt::format("{} was told that {} of the {} ranks are on its host, but {} that {} are on its own; set LOCAL_WORLD_SIZE of every "
                    "rank to the number of ranks on its host",
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

/// A live rank may be about to say which rank it waits for itself, so its accuser waits for that; a rank that is gone or lost will not.
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
    return {Reply::Status::refused, 0, fmt::format("the store is full: it holds at most {} MiB", kMaxStored >> 20)};
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

Reply StoreServer::late() const {
  constexpr std::size_t kShown = 8;
  std::vector<int> missing;
  for (int rank = 0; rank < host_.size; ++rank)
    if (!peers_.contains(rank)) missing.push_back(rank);
  std::string names =
      fmt::format("{}", fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(std::min(missing.size(), kShown)), ", "));
  if (missing.size() > kShown) names += fmt::format(" and {} more", missing.size() - kShown);
  return {Reply::Status::lost, missing.front(),
          fmt::format("only {} of {} ranks connected to rank 0 in time; missing: {}; look at their output, or why they were not started; "
                      "if they need longer, raise comm.deadline_s",
                      peers_.size(), host_.size, names)};
}

}  // namespace paceline::comm
