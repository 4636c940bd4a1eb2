// Attacks on a parameter server by somebody who has the key.
#include <fmt/format.h>

#include <limits>
#include <list>

#include "paceline/base/entropy.h"
#include "paceline/base/error.h"
#include "paceline/ps/transports/grpc.h"
#include "paceline/ps/transports/wire.h"
#include "tests/hostile/attack.h"
#include "tests/hostile/http2.h"

namespace paceline::hostile {
namespace {

using namespace std::chrono_literals;
using comm::Deadline;
using comm::Socket;
using ps::wire::Join;
using ps::wire::Verb;

constexpr char kSession[] = "/paceline.ParameterServer/Session", kBeat[] = "/paceline.ParameterServer/Beat";
constexpr std::size_t kLongestMessage = 4 << 20;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kLeast = std::numeric_limits<std::int64_t>::min();

int count_or(const Target& target, int usual) { return target.count > 0 ? target.count : usual; }

/// Connections that have passed the handshake and speak HTTP/2; as many as the server takes.
std::list<Http2> connect_often(const Target& target, int count) {
  std::list<Http2> connections;
  for (int i = 0; i < count; ++i) {
    try {
      connections.emplace_back(enter(target));
    } catch (const comm::StrangerError&) {  // too many
    } catch (const std::system_error&) {
    }
  }
  return connections;
}

int ended_calls(const std::list<Http2>& connections) {
  int ended = 0;
  for (const Http2& connection : connections) ended += connection.ended();
  return ended;
}

int still_open(const std::list<Http2>& connections) {
  int open = 0;
  for (const Http2& connection : connections) open += connection.is_open() ? 1 : 0;
  return open;
}

/// Holds what was opened until the server has ended it all, or the time is over.
Facts hold(std::list<Http2>& connections, int calls, const Deadline& until) {
  const auto opened = connections.size();
  while (!until.passed() && still_open(connections) > 0 && ended_calls(connections) < calls)
    for (Http2& connection : connections) connection.listen(Deadline(2ms));
  return {{"connections", opened}, {"calls", calls}, {"ended", ended_calls(connections)}, {"open", still_open(connections)}};
}

/// Calls that say nothing: `calls` on each of `count` connections.
Facts open_silent(const Target& target, int count, int calls) {
  std::list<Http2> connections = connect_often(target, count);
  for (Http2& connection : connections)
    for (int i = 0; i < calls; ++i) connection.call(kSession);
  return hold(connections, static_cast<int>(connections.size()) * calls, Deadline(target.time));
}

Facts streams_few_attack(const Target& target) { return open_silent(target, 4, count_or(target, 1000) / 4); }
Facts streams_many_attack(const Target& target) { return open_silent(target, count_or(target, 1000), 1); }
Facts connections_attack(const Target& target) {
  std::list<Http2> connections = connect_often(target, count_or(target, 1000));
  return hold(connections, 1, Deadline(target.time));
}

/// What is said first on each of sixty calls.
Facts say_on_sixty(const Target& target, const std::vector<std::string>& messages) {
  constexpr int kCalls = 60;
  std::list<Http2> connections = connect_often(target, kCalls / 6);
  int said = 0;
  for (Http2& connection : connections)
    for (int i = 0; i < 6; ++i, ++said) {
      const int call = connection.call(kSession);
      connection.send(call, messages[static_cast<std::size_t>(said) % messages.size()], Deadline(200ms));
    }
  return hold(connections, said, Deadline(target.time));
}

/// Heads of a join whose text is longer than there is memory, or shorter than nothing.
Facts heads_attack(const Target& target) {
  std::vector<std::string> messages;
  for (const std::int64_t claim : {std::int64_t(64) << 20, kMost, std::int64_t(-1), kLeast, std::int64_t(1) << 32}) {
    messages.push_back(grpc_message(ps::wire::pack(Verb::join, Join{.token = 1}, claim)) + grpc_message(std::string(100'000, 'x')));
    messages.push_back(grpc_message(ps::wire::pack(Verb::join, Join{.token = 1, .layout = claim, .compression = claim}, 1000)) +
                       grpc_message(std::string(1000, 'x')));
  }
  return say_on_sixty(target, messages);
}

/// Messages that claim more than a message may have, that are no heads, and texts that are as long as they may be and say nothing.
Facts messages_attack(const Target& target) {
  std::vector<std::string> messages;
  for (const std::uint32_t claim : {std::uint32_t(64) << 20, ~std::uint32_t(0), std::uint32_t(1) << 31})
    messages.push_back(grpc_message(std::string(100'000, 'x'), claim));
  for (const std::size_t length : {0, 1, 15, 16, 47, 5000}) messages.push_back(grpc_message(random_bytes(length)));
  messages.push_back(grpc_message(ps::wire::pack(Verb::join, Join{.layout = 30'000}, 60'000)) + grpc_message(std::string(60'000, '{')));
  messages.push_back(grpc_message(ps::wire::pack(Verb::push, ps::wire::PushRequest{}, 64 << 20)));
  return say_on_sixty(target, messages);
}

/// Messages whose last byte never comes, on as many calls as there can be, so that each is kept as a whole.
Facts keep_incomplete(const Target& target, const char* method) {
  const std::string message = grpc_message(std::string(kLongestMessage - 1, 'x'), kLongestMessage);
  std::list<Http2> connections = connect_often(target, count_or(target, 12));
  const Deadline until(target.time);
  int calls = 0;
  for (Http2& connection : connections) {
    connection.listen(Deadline(20ms));  // the server says how much it takes
    for (int i = 0; i < 8 && !until.passed(); ++i, ++calls) connection.send(connection.call(method), message, until);
  }
  return hold(connections, calls, until);
}
Facts incomplete_beats_attack(const Target& target) { return keep_incomplete(target, kBeat); }
Facts incomplete_joins_attack(const Target& target) { return keep_incomplete(target, kSession); }

/// One call that sends 1.7 GB, whatever the server says to it.
Facts one_stream_attack(const Target& target) {
  constexpr std::int64_t kBytes = 1'700'000'000;
  std::list<Http2> connections = connect_often(target, 1);
  Http2& connection = connections.front();
  const Deadline until(target.time);
  const int call = connection.call(kSession);
  connection.send_regardless(call, grpc_message(ps::wire::pack(Verb::join, Join{.layout = 50'000}, 50'000)), until);
  const std::string message = grpc_message(std::string(1 << 20, 'x'));
  std::int64_t sent = 0;
  while (sent < kBytes && connection.send_regardless(call, message, until)) sent += std::ssize(message);
  Facts facts = hold(connections, 1, Deadline(1s));
  facts["sent"] = sent;
  return facts;
}

/// After the handshake, bytes that are not HTTP/2; and a join that is cut off at every seventh byte.
Facts dying_joins_attack(const Target& target) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::vector<Socket> sockets;
  for (int i = 0; i < 20; ++i) {
    sockets.push_back(enter(target));
    send_some(sockets.back(), random_bytes(200));
  }
  const int refused = wait_for_hang_up(sockets, Deadline(kEnough));
  for (std::size_t stage = 0; stage < preface.size(); stage += 2) {
    Socket socket = enter(target);
    send_some(socket, preface.substr(0, stage));
    if (stage % 4 == 0) reset_hard(socket);
  }
  const std::string join = grpc_message(ps::wire::pack(Verb::join, Join{.layout = 100}, 100)) + grpc_message(std::string(100, '{'));
  for (std::size_t stage = 0; stage < join.size(); stage += 7) {
    Http2 connection(enter(target));
    connection.send(connection.call(kSession), std::string_view(join).substr(0, stage), Deadline(1s));
  }
  return {{"opened", 20}, {"refused", refused}};
}

/// A worker with the key, and another model.
Facts other_model_attack(const Target& target) {
  const ps::ArenaLayout layout{.entries = {{"other.weight", {10, 10}, 0, 100, true}}, .length = 100};
  try {
    ps::connect_grpc({target.address.name}, layout, {.security = {.secret = target.key}});
  } catch (const ConfigError& error) {
    return {{"opened", 1}, {"refused", 1}, {"why", error.what()}};
  }
  return {{"opened", 1}, {"refused", 0}};
}

constexpr Attack kServerAttacks[] = {
    {"connections", "1,000 connections without a call", connections_attack},
    {"streams_few", "1,000 calls that say nothing, on 4 connections", streams_few_attack},
    {"streams_many", "1,000 calls that say nothing, on as many connections", streams_many_attack},
    {"heads", "60 heads that claim 64 MiB, 2^63 − 1 and less than nothing", heads_attack},
    {"messages", "messages that claim too much, and messages that are none", messages_attack},
    {"incomplete_beats", "beats of 4 MiB whose last byte never comes", incomplete_beats_attack},
    {"incomplete_joins", "the same as joins", incomplete_joins_attack},
    {"one_stream", "1.7 GB in one call", one_stream_attack},
    {"dying_joins", "bytes that are not HTTP/2, and joins that are cut off", dying_joins_attack},
    {"other_model", "a join of another model", other_model_attack},
};

}  // namespace

std::span<const Attack> server_attacks() { return kServerAttacks; }

}  // namespace paceline::hostile
