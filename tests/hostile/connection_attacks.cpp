// Attacks before and within the handshake. None of them but `dies`, `replay`, `proved` and `guest` has the key.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "paceline/base/clock.h"
#include "paceline/base/entropy.h"
#include "tests/hostile/attack.h"

namespace paceline::hostile {

using namespace std::chrono_literals;
using comm::Deadline;
using comm::Socket;
namespace handshake = comm::handshake;

Nanoseconds now() { return SteadyClock().now(); }
double seconds_since(Nanoseconds start) { return seconds(now() - start); }

Socket knock(const Target& target) { return comm::dial(target.address, Deadline(kEnough)); }

Socket enter(const Target& target) {
  Socket socket = knock(target);
  comm::authenticate(socket, target.key, target.purpose, Deadline(kEnough));
  return socket;
}

std::vector<Socket> knock_often(const Target& target, int count) {
  std::vector<Socket> sockets;
  for (int i = 0; i < count; ++i) {
    try {
      sockets.push_back(comm::dial(target.address, Deadline(target.time)));
    } catch (const std::system_error&) {  // its queue is full, as a flood's should be
      std::this_thread::sleep_for(1ms);
    }
  }
  return sockets;
}

bool send_some(const Socket& socket, std::string_view bytes) {
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN;
}

int wait_for_hang_up(std::vector<Socket>& sockets, const Deadline& until) {
  std::array<char, 4096> bytes;
  const std::size_t all = sockets.size();
  while (!sockets.empty()) {
    std::vector<pollfd> entries;
    for (const Socket& socket : sockets) entries.push_back({socket.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), std::min(until.poll_ms(), 200)) < 0 && errno != EINTR) break;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      const ssize_t got = ::recv(sockets[i].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) sockets[i].reset();
    }
    std::erase_if(sockets, [](const Socket& socket) { return !socket; });
    if (until.passed()) break;
  }
  return static_cast<int>(all - sockets.size());
}

void reset_hard(Socket& socket) {
  const linger at_once{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket.reset();
}

namespace {

/// Opens `count` connections, sends the same on each, and waits until the victim has hung up.
Facts send_to_many(const Target& target, int count, const std::string& bytes) {
  std::vector<Socket> sockets = knock_often(target, count);
  const std::size_t opened = sockets.size();
  for (const Socket& socket : sockets) send_some(socket, bytes);
  return {{"opened", opened}, {"refused", wait_for_hang_up(sockets, Deadline(kEnough))}};
}

Facts random_attack(const Target& target) { return send_to_many(target, target.count > 0 ? target.count : 100, random_bytes(64 << 10)); }

/// The beginning of HTTP/2 and one message of 1.7 GB, in frames as long as they may be.
Facts http2_attack(const Target& target) {
  constexpr std::int64_t kBytes = 1'700'000'000;
  const std::string frame = std::string("\x3f\xff\xff\0\0\0\0\0\1", 9) + std::string(4 << 20, 'x');
  const Socket socket = knock(target);
  const Deadline until(target.time);
  std::int64_t sent = 0;
  bool refused = false;
  try {
    comm::send_all(socket, std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\4\0\0\0\0\0", 9), until);
    for (; sent < kBytes && !until.passed(); sent += std::ssize(frame)) comm::send_all(socket, frame, until);
  } catch (const std::system_error& error) {
    refused = error.code() != std::errc::timed_out;
  }
  return {{"opened", 1}, {"refused", refused ? 1 : 0}, {"sent", sent}};
}

/// Lengths of 64 MiB, 2^63, −1 and their like where a length could be, in either order of bytes, of 4 bytes and of 8.
Facts lengths_attack(const Target& target) {
  std::vector<Socket> sockets;
  for (const std::uint64_t length : {std::uint64_t(64) << 20, std::uint64_t(1) << 63, ~std::uint64_t(0), std::uint64_t(0x7fffffff)}) {
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    for (int order = 0; order < 2; ++order, std::ranges::reverse(bytes))
      for (const std::size_t tail : {std::size_t(0), handshake::kResponseBytes}) {
        sockets.push_back(knock(target));
        send_some(sockets.back(), bytes + std::string(tail, '\0'));
      }
  }
  const std::size_t opened = sockets.size();
  return {{"opened", opened}, {"refused", wait_for_hang_up(sockets, Deadline(kEnough))}};
}

Facts silent_attack(const Target& target) { return send_to_many(target, target.count > 0 ? target.count : 1000, ""); }

/// A ClientHello of TLS, as long as it says it is, with nothing in it that a server would like.
std::string client_hello() {
  const std::string body = std::string("\x03\x03", 2) + random_bytes(32) + std::string(1, '\0') + std::string("\0\2\x13\1\1\0", 6);
  const auto length = [](std::size_t bytes, int places) {
    std::string text;
    while (places-- > 0) text += static_cast<char>(bytes >> (8 * places));
    return text;
  };
  const std::string message = "\1" + length(body.size(), 3) + body;
  return std::string("\x16\x03\x01", 3) + length(message.size(), 2) + message;
}

Facts client_hello_attack(const Target& target) { return send_to_many(target, target.count > 0 ? target.count : 1000, client_hello()); }

Facts half_hello_attack(const Target& target) {
  return send_to_many(target, target.count > 0 ? target.count : 1000, random_bytes(handshake::kResponseBytes / 2));
}

/// With the key, against a server with TLS: proves itself, and goes on with silence, with half a ClientHello, with one that leads nowhere,
/// or with something else.
Facts proved_attack(const Target& target) {
  const std::string hello = client_hello();
  const std::string next[] = {"", hello.substr(0, hello.size() / 2), hello, random_bytes(64 << 10)};
  std::vector<Socket> sockets;
  for (int i = 0; i < (target.count > 0 ? target.count : 200); ++i) {
    sockets.push_back(enter(target));
    send_some(sockets.back(), next[static_cast<std::size_t>(i) % std::size(next)]);
  }
  const std::size_t opened = sockets.size();
  return {{"opened", opened}, {"refused", wait_for_hang_up(sockets, Deadline(kEnough))}};
}

/// One byte now and then, for as long as it is listened to.
Facts slow_attack(const Target& target) {
  std::vector<Socket> sockets = knock_often(target, target.count > 0 ? target.count : 32);
  const std::size_t opened = sockets.size();
  int refused = 0;
  for (const Deadline until(kEnough); !sockets.empty() && !until.passed();) {
    for (const Socket& socket : sockets) send_some(socket, "x");
    refused += wait_for_hang_up(sockets, Deadline(500ms));
  }
  return {{"opened", opened}, {"refused", refused}};
}

/// Peers that will not send any more, and peers that vanished without a word, as a host does that lost its power.
Facts half_open_attack(const Target& target) {
  std::vector<Socket> sockets = knock_often(target, target.count > 0 ? target.count : 200);
  const std::size_t opened = sockets.size();
  int vanished = 0;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    const int on = 1;
    if (i % 2 == 0) ::shutdown(sockets[i].get(), SHUT_WR);
    else if (::setsockopt(sockets[i].get(), IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) == 0) ++vanished, sockets[i].reset();
  }
  std::erase_if(sockets, [](const Socket& socket) { return !socket; });
  const int refused = wait_for_hang_up(sockets, Deadline(kEnough));
  return {{"opened", opened}, {"vanished", vanished}, {"refused", refused + vanished}};
}

Facts churn_attack(const Target& target) {
  const int most = target.count > 0 ? target.count : 20'000;
  int opened = 0;
  for (const Deadline until(target.time); opened < most && !until.passed(); ++opened) {
    try {
      Socket socket = comm::dial(target.address, until);
      if (opened % 2 == 0) reset_hard(socket);  // else the end of its scope closes it politely
    } catch (const std::system_error&) {
      std::this_thread::sleep_for(1ms);
    }
  }
  return {{"opened", opened}};
}

/// As the victim's log should name it.
std::string name_of(const Socket& socket, const Target& target) {
  if (target.address.address.ss_family == AF_UNIX) return "pid " + std::to_string(::getpid());
  return "127.0.0.1:" + std::to_string(comm::port_of(socket));
}

Facts wrong_key_attack(const Target& target) {
  const int count = target.count > 0 ? target.count : 5;
  Facts facts{{"opened", count}, {"refused", 0}};
  double quickest = seconds(kEnough);
  for (int i = 0; i < count; ++i) {
    const Nanoseconds start = now();
    const Socket socket = knock(target);
    if (i == 0) facts["first"] = name_of(socket, target);
    try {
      comm::authenticate(socket, hex(random_bytes(16)), target.purpose, Deadline(kEnough));
    } catch (const comm::StrangerError&) {
      facts["refused"] = facts["refused"].get<int>() + 1;
    }
    quickest = std::min(quickest, seconds_since(start));
  }
  facts["quickest"] = quickest;
  return facts;
}

/// Carries bytes between a client and the victim, and keeps them.
struct Recording {
  std::string greeting, response, proof;
};
Recording record(const Target& target) {
  const Socket listener = comm::listen_at(comm::tcp_address("127.0.0.1", 0));
  const Target relay{.address = comm::tcp_address("127.0.0.1", comm::port_of(listener)), .key = target.key, .purpose = target.purpose};
  Recording kept;
  std::thread carrier([&] {
    const Deadline until(kEnough);
    const Socket victim = knock(target);
    Socket client;
    while (!client && !until.passed()) client = comm::accept_from(listener).first;
    kept.greeting = comm::receive_exactly(victim, handshake::kGreetingBytes, until);
    comm::send_all(client, kept.greeting, until);
    kept.response = comm::receive_exactly(client, handshake::kResponseBytes, until);
    comm::send_all(victim, kept.response, until);
    kept.proof = comm::receive_exactly(victim, handshake::kProofBytes, until);
    comm::send_all(client, kept.proof, until);
  });
  const Socket client = enter(relay);
  carrier.join();
  return kept;
}

/// What was once a good conversation, said again: to the victim as a client, and to an honest client as the victim.
Facts replay_attack(const Target& target) {
  const Recording old = record(target);
  std::vector<Socket> again = knock_often(target, 20);
  const std::size_t opened = again.size();
  for (const Socket& socket : again) send_some(socket, old.response);
  const int refused = wait_for_hang_up(again, Deadline(kEnough));

  auto [impostor, client] = comm::socket_pair();
  comm::send_all(impostor, old.greeting + old.proof, Deadline(kEnough));
  bool fooled = true;
  try {
    comm::authenticate(client, target.key, target.purpose, Deadline(kEnough));
  } catch (const comm::StrangerError&) {
    fooled = false;
  }
  return {{"opened", opened}, {"refused", refused}, {"client_fooled", fooled}};
}

/// With the key: a peer that dies after every byte of its response, politely or not.
Facts dies_attack(const Target& target) {
  for (std::size_t stage = 0; stage <= handshake::kResponseBytes; ++stage) {
    Socket socket = knock(target);
    const std::string greeting = comm::receive_exactly(socket, handshake::kGreetingBytes, Deadline(kEnough));
    const handshake::Response response(target.key, target.purpose, greeting);
    comm::send_all(socket, response.bytes().substr(0, stage), Deadline(kEnough));
    if (stage % 2 == 0) reset_hard(socket);
  }
  return {{"opened", handshake::kResponseBytes + 1}};
}

/// A member's handshake over a link of 10 ms.
void enter_from_afar(const Target& target) {
  const Socket socket = knock(target);
  const Deadline until(kEnough);
  const handshake::Response response(target.key, target.purpose, comm::receive_exactly(socket, handshake::kGreetingBytes, until));
  std::this_thread::sleep_for(10ms);
  comm::send_all(socket, response.bytes(), until);
  comm::receive_exactly(socket, handshake::kProofBytes, until);
}

/// Whether a member of the job still gets in, and how often it had to try: the other attacks run beside this.
Facts guest_attack(const Target& target) {
  const int count = target.count > 0 ? target.count : 5;
  int tries = 0, entered = 0;
  for (const Deadline until(kEnough); entered < count && !until.passed();) {
    ++tries;
    try {
      enter_from_afar(target);
      ++entered;
    } catch (const comm::StrangerError&) {  // pushed out by others
    } catch (const std::system_error&) {
    }
  }
  return {{"opened", count}, {"entered", entered}, {"tries", tries}};
}

/// As another user, who must be root to become it; with the key, which alone must not help on a unix socket.
Facts user_attack(const Target& target) {
  constexpr uid_t kNobody = 65534;
  if (::setuid(kNobody) != 0) return {{"skipped", "only root can become another user"}};
  try {
    const Socket socket = knock(target);
    const std::string heard = comm::receive_exactly(socket, 1, Deadline(kEnough));
    return {{"opened", 1}, {"refused", 0}};
  } catch (const std::system_error& error) {
    return {{"opened", 1}, {"refused", error.code() == std::errc::connection_reset ? 1 : 0}, {"why", error.code().message()}};
  }
}

constexpr Attack kConnectionAttacks[] = {
    {"random", "random bytes", random_attack},
    {"http2", "the preface of HTTP/2 and a message of 1.7 GB", http2_attack},
    {"lengths", "lengths of 64 MiB, 2^63 and less than nothing", lengths_attack},
    {"silent", "1,000 connections at once that say nothing", silent_attack},
    {"client_hello", "1,000 connections that begin with TLS", client_hello_attack},
    {"half_hello", "1,000 connections that stop in the middle of the handshake", half_hello_attack},
    {"proved", "proves itself, and does not finish TLS; with the key", proved_attack},
    {"slow", "one byte now and then", slow_attack},
    {"half_open", "peers that stop sending, or vanish", half_open_attack},
    {"churn", "opens and closes connections as fast as it can", churn_attack},
    {"wrong_key", "a handshake with another key", wrong_key_attack},
    {"replay", "a recorded handshake", replay_attack},
    {"dies", "dies after every byte of the handshake; with the key", dies_attack},
    {"guest", "no attack: an honest handshake; with the key", guest_attack},
    {"user", "as another user", user_attack},
};

}  // namespace

std::span<const Attack> connection_attacks() { return kConnectionAttacks; }

}  // namespace paceline::hostile
