// How strangers are kept out: the proofs, and the reception that asks for them.
#include "paceline/comm/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "paceline/comm/reception.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using handshake::Challenge;
using handshake::Response;

constexpr Nanoseconds kEnough = 20s;  // no test waits so long unless something is broken

TEST(Handshake, ConvincesBothSides) {
  const Challenge server("key", kForStore);
  const Response client("key", kForStore, server.greeting());
  EXPECT_EQ(client.bytes().size(), handshake::kResponseBytes);
  const auto proof = server.answer(client.bytes());
  ASSERT_TRUE(proof);
  EXPECT_NO_THROW(client.check(*proof));
  EXPECT_THROW(client.check(handshake::kRefusal), StrangerError);
}

TEST(Handshake, RefusesAnotherKeyOrPurpose) {
  const Challenge server("key", kForStore);
  EXPECT_FALSE(server.answer(Response("other", kForStore, server.greeting()).bytes()));
  EXPECT_FALSE(server.answer(Response("", kForStore, server.greeting()).bytes()));
  EXPECT_FALSE(server.answer(Response("key", kForServers, server.greeting()).bytes()));
  const Challenge impostor("other", kForStore);
  const Response client("key", kForStore, impostor.greeting());
  EXPECT_FALSE(impostor.answer(client.bytes()));
}

/// A client that expects TLS at a server without, and the other way round: both learn it, and nobody is let in.
TEST(Handshake, TellsWhoKnowsTheKeyOfAnotherPurpose) {
  const Challenge server("key", kForServers);
  const Response client("key", kForServersOverTls, server.greeting(), kForServers);
  EXPECT_FALSE(server.answer(client.bytes()));
  const auto correction = server.correct(client.bytes(), kForServersOverTls);
  ASSERT_TRUE(correction);
  EXPECT_THROW(client.check(*correction), OtherPurposeError);
  EXPECT_THROW(client.check(handshake::kRefusal), StrangerError);
  const Response stranger("other", kForServersOverTls, server.greeting(), kForServers);
  EXPECT_FALSE(server.correct(stranger.bytes(), kForServersOverTls)) << "a stranger learns nothing";
}

TEST(Handshake, RefusesARecording) {
  const Challenge then("key", kForStore), now("key", kForStore);
  const Response client("key", kForStore, then.greeting());
  ASSERT_TRUE(then.answer(client.bytes()));
  EXPECT_FALSE(now.answer(client.bytes())) << "a response to another greeting";
  EXPECT_THROW(Response("key", kForStore, now.greeting()).check(*then.answer(client.bytes())), StrangerError)
      << "a proof for another client";
}

TEST(Handshake, RefusesItsOwnReflection) {
  const Challenge server("key", kForStore);
  const Response client("key", kForStore, server.greeting());
  EXPECT_THROW(client.check(client.bytes().substr(handshake::kNonceBytes)), StrangerError);
}

TEST(Handshake, RefusesEveryChangedBitAndLength) {
  const Challenge server("key", kForStore);
  const std::string good = Response("key", kForStore, server.greeting()).bytes();
  for (std::size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(server.answer(bad)) << i;
    }
  for (std::size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(server.answer(good.substr(0, length)));
  EXPECT_FALSE(server.answer(good + "x"));
}

TEST(Handshake, SaysNothingToAnotherProgram) {
  EXPECT_THROW(Response("key", kForStore, "HTTP/1.1 400 Bad Request"), StrangerError);
  EXPECT_THROW(Response("key", kForStore, std::string(handshake::kGreetingBytes, 'x')), StrangerError);
}

/// A reception on loopback, and who was let in.
struct Hall {
  explicit Hall(const std::string& key = "key") {
    Socket listener = listen_at(tcp_address("127.0.0.1", 0));
    address = tcp_address("127.0.0.1", port_of(listener));
    reception.emplace(std::move(listener), key, kForStore, [this](Socket, const std::string&) { ++admitted; });
  }
  Socket knock() const { return dial(address, Deadline(kEnough)); }
  bool lets_in(const std::string& key) const {
    try {
      authenticate(knock(), key, kForStore, Deadline(kEnough));
      return true;
    } catch (const StrangerError&) {
      return false;
    }
  }

  SocketAddress address;
  std::atomic<int> admitted = 0;
  std::optional<Reception> reception;
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

bool hung_up(const Socket& socket) {
  try {
    for (;;) receive_exactly(socket, 1, Deadline(kEnough));  // the greeting comes first
  } catch (const std::system_error& error) {
    return error.code() == std::errc::connection_reset;
  }
}

TEST(Reception, LetsInWhoeverKnowsTheKey) {
  Hall hall;
  EXPECT_TRUE(hall.lets_in("key"));
  EXPECT_FALSE(hall.lets_in("other"));
  EXPECT_TRUE(hall.lets_in("key"));
  hall.reception.reset();
  EXPECT_EQ(hall.admitted, 2);
}

TEST(Reception, HangsUpOnOtherProtocols) {
  Hall hall;
  const auto hangs_up_on = [&](const std::string& bytes) {
    const Socket socket = hall.knock();
    send_all(socket, bytes, Deadline(kEnough));
    return hung_up(socket);
  };
  EXPECT_TRUE(hangs_up_on(std::string(handshake::kResponseBytes, '\xff')));
  EXPECT_TRUE(hangs_up_on("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(100, '\0')));
  EXPECT_TRUE(hangs_up_on("x")) << "one byte, and then silence";
  EXPECT_TRUE(hall.lets_in("key"));
}

/// A peer's number may be anything; with UndefinedBehaviorSanitizer this says more.
TEST(Deadline, TakesAnyNumber) {
  const Deadline never(Nanoseconds::max()), long_ago(Nanoseconds::min());
  EXPECT_FALSE(never.passed());
  EXPECT_GT(never.left(), std::chrono::hours(24 * 365));
  EXPECT_TRUE(long_ago.passed());
  EXPECT_EQ(long_ago.left(), Nanoseconds(0));
  EXPECT_EQ(long_ago.poll_ms(), 0);
}

/// A member of the job over a long link, beside a flood: it has its time, whoever comes after it.
TEST(Reception, PushesNobodyOutAtOnce) {
  Hall hall;
  const Socket member = hall.knock();
  const std::string greeting = receive_exactly(member, handshake::kGreetingBytes, Deadline(kEnough));
  std::vector<Socket> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(hall.knock());
  for (const Socket& socket : flood) receive_exactly(socket, handshake::kGreetingBytes, Deadline(kEnough));
  send_all(member, Response("key", kForStore, greeting).bytes(), Deadline(kEnough));
  EXPECT_EQ(receive_exactly(member, handshake::kProofBytes, Deadline(kEnough)).size(), handshake::kProofBytes);
}

TEST(Reception, HoldsFewOfAFlood) {
  Hall hall;
  const std::size_t before = open_descriptors();
  std::vector<Socket> flood;
  for (int i = 0; i < 500; ++i) flood.push_back(hall.knock());
  bool in = false;  // a member that the flood displaces tries again, as the store's clients do: on a busy machine it may have to
  for (int tries = 0; tries < 50 && !in; ++tries) try {
      in = hall.lets_in("key");
    } catch (const std::system_error&) {  // hung up on
    }
  EXPECT_TRUE(in) << "beside 500 that are silent";
  EXPECT_LT(open_descriptors(), before + flood.size() + 150) << "the reception's part is bounded";
  EXPECT_TRUE(hung_up(flood.front()));
}

TEST(Reception, LeavesTheJobAloneWhenPeersDieAtEveryStage) {
  Hall hall;
  for (std::size_t stage = 0; stage <= handshake::kResponseBytes; stage += 8) {
    const Socket socket = hall.knock();
    const std::string greeting = receive_exactly(socket, handshake::kGreetingBytes, Deadline(kEnough));
    send_all(socket, Response("key", kForStore, greeting).bytes().substr(0, stage), Deadline(kEnough));
  }
  EXPECT_TRUE(hall.lets_in("key"));
}

}  // namespace
}  // namespace paceline::comm
