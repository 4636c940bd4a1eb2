// Attacks on a store by somebody who has the key. `come` and what follows it play rank 2 of three, whose instance is always the same.
#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "paceline/base/entropy.h"
#include "paceline/comm/tcp_store_wire.h"
#include "paceline/comm/world.h"
#include "tests/hostile/attack.h"

namespace paceline::hostile {
namespace {

using namespace std::chrono_literals;
using comm::Deadline;
using comm::Socket;
using comm::wire::Hello;
using comm::wire::Op;
using comm::wire::Reply;
using comm::wire::Request;

Hello rank_two() { return {2, 3, ::getpid(), 42, comm::host_id(), "hostile", 3}; }

Reply heard(const Socket& socket) {
  const std::size_t length = comm::wire::frame_length(comm::receive_exactly(socket, comm::wire::kHeaderBytes, Deadline(kEnough)));
  const auto reply = comm::wire::decode_reply(comm::receive_exactly(socket, length, Deadline(kEnough)));
  if (!reply) throw Error("the store answers with something that is not a reply");
  return *reply;
}

void tell(const Socket& socket, const std::string& payload) { comm::send_all(socket, comm::wire::frame(payload), Deadline(kEnough)); }

/// A connection as rank 2.
Socket enter_as_rank(const Target& target) {
  Socket socket = enter(target);
  tell(socket, encode(rank_two()));
  if (const Reply reply = heard(socket); reply.status != Reply::Status::ok) throw Error(reply.text);
  return socket;
}

/// Waits for a store that is not there yet.
Facts come_attack(const Target& target) {
  Socket socket;
  for (const Deadline until(60s); !socket; std::this_thread::sleep_for(50ms)) {
    try {
      socket = enter_as_rank(target);
    } catch (const std::system_error&) {
      if (until.passed()) throw;
    }
  }
  tell(socket, encode(Request{Op::join, {}, {}, std::chrono::nanoseconds(kEnough).count()}));
  return {{"joined", heard(socket).status == Reply::Status::ok}};
}

/// Lets itself in as often as it can and says nothing.
Facts members_attack(const Target& target) {
  const int count = target.count > 0 ? target.count : 1000;
  std::vector<Socket> sockets;
  for (int i = 0; i < count; ++i) sockets.push_back(enter(target));
  return {{"opened", count}, {"refused", wait_for_hang_up(sockets, Deadline(kEnough))}};
}

/// Hellos that are none: too long, as long as they do not say, cut off at every byte.
Facts hellos_attack(const Target& target) {
  std::vector<Socket> sockets;
  const auto say = [&](const std::string& bytes) {
    sockets.push_back(enter(target));
    send_some(sockets.back(), bytes);
  };
  const auto length = [](std::uint32_t bytes) { return std::string(reinterpret_cast<const char*>(&bytes), sizeof(bytes)); };
  for (const std::uint32_t claim : {std::uint32_t(64) << 20, ~std::uint32_t(0), std::uint32_t(1) << 31, std::uint32_t(1025)})
    say(length(claim) + std::string(512, 'x'));
  for (int i = 0; i < 20; ++i) say(comm::wire::frame(random_bytes(100)));
  const Hello honest = rank_two();
  for (const std::size_t at : {std::size_t(20), 24 + honest.host_id.size()}) {  // where the lengths of its texts are
    std::string bytes = encode(honest);
    say(comm::wire::frame(bytes.replace(at, 4, "\xff\xff\xff\x7f")));
    say(comm::wire::frame(bytes.substr(0, at + 4)));
  }
  const std::size_t opened = sockets.size();
  const int refused = wait_for_hang_up(sockets, Deadline(kEnough));
  const std::string whole = comm::wire::frame(encode(rank_two()));
  for (std::size_t stage = 0; stage < whole.size(); stage += 3) {
    Socket socket = enter(target);
    send_some(socket, whole.substr(0, stage));
    if (stage % 2 == 0) reset_hard(socket);
  }
  return {{"opened", opened}, {"refused", refused}};
}

/// Well-formed hellos of somebody who is not a rank of this job.
Facts impostors_attack(const Target& target) {
  std::vector<Hello> hellos(5, rank_two());
  hellos[0].rank = 1;
  hellos[1].rank = 0;
  hellos[2].rank = std::numeric_limits<std::int32_t>::min();
  hellos[3].size = std::numeric_limits<std::int32_t>::max();
  hellos[4].instance = 43;
  int refused = 0;
  for (const Hello& hello : hellos) {
    const Socket socket = enter(target);
    tell(socket, encode(hello));
    if (heard(socket).status != Reply::Status::ok) ++refused;
  }
  return {{"opened", hellos.size()}, {"refused", refused}};
}

/// Asks for a large value again and again and does not read the answers.
int ask_without_reading(const Target& target) {
  const Socket socket = enter_as_rank(target);
  tell(socket, encode(Request{Op::set, "large", std::string(1'000'000, 'x'), 0}));
  heard(socket);
  const std::string ask = comm::wire::frame(encode(Request{Op::get, "large", {}, 0}));
  int asked = 0;
  for (; asked < 400 && send_some(socket, ask); ++asked) std::this_thread::sleep_for(2ms);
  return asked;
}

/// A rank that has gone over: numbers at their limits, requests that lie, answers that nobody takes, connections without end.
Facts rank_attack(const Target& target) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max(), kLeast = std::numeric_limits<std::int64_t>::min();
  const int asked = ask_without_reading(target);
  std::vector<Socket> waiting;
  for (const std::int64_t deadline : {kMost, kLeast, std::int64_t(-1)}) {
    waiting.push_back(enter_as_rank(target));
    tell(waiting.back(), encode(Request{Op::wait, "never", {}, deadline}));
    waiting.push_back(enter_as_rank(target));
    tell(waiting.back(), encode(Request{Op::join, "", {}, deadline}));
  }
  const Socket counting = enter_as_rank(target);
  for (const std::int64_t amount : {kMost, kMost, kLeast, kLeast})
    tell(counting, encode(Request{Op::add, "sum", {}, amount})), heard(counting);
  std::vector<Socket> sockets;
  for (int i = 0; i < 60; ++i) {
    sockets.push_back(enter(target));
    tell(sockets.back(), encode(rank_two()));
  }
  const int refused = wait_for_hang_up(sockets, Deadline(2s));
  std::vector<Socket> liars;
  for (Socket& socket : sockets) {
    send_some(socket, std::string("\xff\xff\xff\x7f", 4) + std::string(100, 'x'));
    liars.push_back(std::move(socket));
  }
  const auto lied = liars.size();
  return {{"opened", lied}, {"refused", wait_for_hang_up(liars, Deadline(kEnough))}, {"too_many", refused}, {"asked", asked}};
}

constexpr Attack kStoreAttacks[] = {
    {"come", "no attack: rank 2 of three comes, so that the job begins", come_attack},
    {"members", "1,000 connections that know the key and say nothing more", members_attack},
    {"hellos", "hellos that are too long, random or cut off", hellos_attack},
    {"impostors", "hellos of another job, and of ranks that are there already", impostors_attack},
    {"rank", "a rank that has gone over", rank_attack},
};

}  // namespace

std::span<const Attack> store_attacks() { return kStoreAttacks; }

}  // namespace paceline::hostile
