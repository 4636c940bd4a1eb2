// The stores: what every one of them does, and how the one of processes meets ranks that do not fit together, strangers and the dead.
#include "paceline/comm/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/engines/address.h"
#include "paceline/comm/sockets.h"
#include "paceline/comm/tcp_store.h"
#include "paceline/comm/tcp_store_wire.h"
#include "paceline/comm/world.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr Nanoseconds kLong = 20s;  // no test waits so long unless something is broken

/// Ports that are free: bound once to be told, then let go.
int free_port() {
  const Socket socket = listen_at(tcp_address("127.0.0.1", 0));
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

std::string fresh_job() {
  static std::atomic<int> count{0};
  return "store_test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

World world_of(int rank, int size, int port, const std::string& job = "job") {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.address = "127.0.0.1";
  world.port = port;
  world.job = job;
  world.source = port == 0 ? "paceline run" : "torchrun";
  return world;
}

void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

/// What connect_store says on each of these worlds, started together; empty where all is well. "config: " or "peer N: " in front.
std::vector<std::string> outcomes(const std::vector<World>& worlds, Nanoseconds deadline = kLong) {
  std::vector<std::string> said(worlds.size());
  on_threads(static_cast<int>(worlds.size()), [&](int i) {
    const auto index = static_cast<std::size_t>(i);
    try {
      connect_store(worlds[index], deadline);
    } catch (const ConfigError& error) {
      said[index] = std::string("config: ") + error.what();
    } catch (const PeerError& error) {
      said[index] = "peer " + std::to_string(error.rank()) + ": " + error.what();
    }
  });
  return said;
}

enum class Kind { memory, local, tcp };

class AnyStore : public testing::TestWithParam<Kind> {
 protected:
  static constexpr int kRanks = 4;

  /// Runs the body on every rank, each with its view of one store.
  void with_ranks(const std::function<void(int rank, Store&)>& body) const {
    const auto shared = memory_store();
    const std::string job = fresh_job();
    const int port = GetParam() == Kind::tcp ? free_port() : 0;
    on_threads(kRanks, [&](int rank) {
      const auto store = GetParam() == Kind::memory ? shared : connect_store(world_of(rank, kRanks, port, job), kLong);
      body(rank, *store);
    });
  }
};

TEST_P(AnyStore, CarriesValues) {
  with_ranks([](int rank, Store& store) {
    store.set("rank/" + std::to_string(rank), std::string("a\0b", 3) + std::to_string(rank));
    for (int other = 0; other < kRanks; ++other)
      EXPECT_EQ(store.wait("rank/" + std::to_string(other), kLong), std::string("a\0b", 3) + std::to_string(other));
    EXPECT_EQ(store.get("nobody"), std::nullopt);
    EXPECT_EQ(store.wait("nobody", 20ms), std::nullopt);
    store.set("mine" + std::to_string(rank), "one");
    store.set("mine" + std::to_string(rank), "two");
    EXPECT_EQ(store.get("mine" + std::to_string(rank)), "two");
  });
}

TEST_P(AnyStore, Counts) {
  constexpr int kTimes = 50;
  with_ranks([](int, Store& store) {
    for (int i = 0; i < kTimes; ++i)
      if (store.add("count", 1) == kTimes * kRanks) store.set("full", "yes");
    EXPECT_EQ(store.wait("full", kLong), "yes");
    EXPECT_EQ(store.add("count", -2) % 2, 0);
    store.set("text", "abc");
    EXPECT_THROW(store.add("text", 1), ConfigError);
    EXPECT_EQ(store.get("text"), "abc");
  });
}

TEST_P(AnyStore, LetsOneThreadSetWhileAnotherWaits) {
  with_ranks([](int rank, Store& store) {
    const std::string key = "later" + std::to_string(rank);
    std::thread waiting([&] { EXPECT_EQ(store.wait(key, kLong), "now"); });
    std::this_thread::sleep_for(20ms);
    store.set(key, "now");
    waiting.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Stores, AnyStore, testing::Values(Kind::memory, Kind::local, Kind::tcp), [](const auto& test) {
  return test.param == Kind::memory ? "memory" : test.param == Kind::local ? "local" : "tcp";
});

TEST(TcpStore, RefusesWhatIsTooLarge) {
  const int port = free_port();
  on_threads(2, [&](int rank) {
    const auto store = connect_store(world_of(rank, 2, port), kLong);
    EXPECT_THROW(store->set("key", std::string(wire::kMaxFrame, 'x')), ConfigError);
    store->set("done" + std::to_string(rank), std::string(wire::kMaxFrame - 100, 'x'));  // and lives on
    EXPECT_EQ(store->wait("done" + std::to_string(1 - rank), kLong)->size(), wire::kMaxFrame - 100);
  });
}

TEST(TcpStore, IsBounded) {
  on_threads(2, [job = fresh_job()](int rank) {
    const auto store = connect_store(world_of(rank, 2, 0, job), kLong);
    if (rank == 1) {
      const std::string large(1000 << 10, 'x');
      const auto fill = [&] {
        for (int i = 0; i < 100; ++i) store->set("large" + std::to_string(i), large);
      };
      EXPECT_THROW(fill(), ConfigError);
      for (int i = 0; i < 3; ++i) store->set("large0", large);  // in place of itself there is always room
      store->set("done", "");
    }
    EXPECT_TRUE(store->wait("done", kLong));
  });
}

TEST(TcpStore, SaysThatRankZeroIsGone) {
  const int port = free_port();
  on_threads(2, [&](int rank) {
    const auto store = connect_store(world_of(rank, 2, port), kLong);
    if (rank == 0) return;
    try {
      store->wait("never", kLong);
      FAIL();
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("rank 0"));
    }
  });
}

TEST(Rendezvous, OneRankNeedsNobody) {
  World alone;
  const auto store = connect_store(alone, kLong);
  store->set("a", "b");
  EXPECT_EQ(store->get("a"), "b");
}

TEST(Rendezvous, NamesTwoRanksWithOneNumber) {
  const int port = free_port();
  const auto said = outcomes({world_of(0, 3, port), world_of(1, 3, port), world_of(1, 3, port)});
  for (const std::string& one : said) EXPECT_THAT(one, AllOf(HasSubstr("config: "), HasSubstr("are both rank 1"), HasSubstr("pid ")));
}

TEST(Rendezvous, NamesTwoRankZeros) {
  const int port = free_port();
  const auto said = outcomes({world_of(0, 2, port), world_of(0, 2, port)});
  for (const std::string& one : said) EXPECT_THAT(one, AllOf(HasSubstr("config: "), HasSubstr("are both rank 0")));
  const auto local = outcomes({world_of(0, 2, 0, fresh_job()), world_of(0, 2, 0, fresh_job())}, 300ms);
  for (const std::string& one : local) EXPECT_THAT(one, HasSubstr("missing: 1"));  // two jobs, which do not meet
}

TEST(Rendezvous, NamesDifferentWorldSizes) {
  const int port = free_port();
  const auto said = outcomes({world_of(0, 2, port), world_of(1, 3, port)});
  for (const std::string& one : said) EXPECT_THAT(one, AllOf(HasSubstr("one of 3 ranks"), HasSubstr("one of 2"), HasSubstr("WORLD_SIZE")));
}

TEST(Rendezvous, NamesTheRanksThatDoNotCome) {
  const int port = free_port();
  const auto said = outcomes({world_of(0, 4, port), world_of(2, 4, port)}, 300ms);
  for (const std::string& one : said) EXPECT_THAT(one, AllOf(HasSubstr("peer 1: "), HasSubstr("2 of 4 ranks"), HasSubstr("missing: 1, 3")));
}

TEST(Rendezvous, SaysThatRankZeroCannotBeReached) {
  const auto said = outcomes({world_of(1, 2, free_port())}, 200ms);
  EXPECT_THAT(said[0], AllOf(HasSubstr("peer 0: "), HasSubstr("cannot reach rank 0 at 127.0.0.1:"), HasSubstr("refused")));
}

TEST(Rendezvous, NamesAPortInUse) {
  const int port = free_port();
  const Socket stranger = listen_at(tcp_address("127.0.0.1", port));
  const auto said = outcomes({world_of(0, 2, port)});
  EXPECT_THAT(said[0], AllOf(HasSubstr("config: 127.0.0.1:" + std::to_string(port)), HasSubstr("in use"), HasSubstr("MASTER_PORT")));
}

TEST(Rendezvous, NamesAPortThatIsHeldWithoutAListener) {
  const Socket stranger(::socket(AF_INET, SOCK_STREAM, 0));
  SocketAddress address = tcp_address("127.0.0.1", 0);
  auto* raw = reinterpret_cast<sockaddr*>(&address.address);
  ASSERT_EQ(::bind(stranger.get(), raw, address.length), 0);
  ASSERT_EQ(::getsockname(stranger.get(), raw, &address.length), 0);
  const int port = ntohs(reinterpret_cast<sockaddr_in&>(address.address).sin_port);
  for (const std::string& one : outcomes({world_of(0, 2, port), world_of(1, 2, port)}))
    EXPECT_THAT(one, AllOf(HasSubstr("config: 127.0.0.1:" + std::to_string(port)), HasSubstr("in use"), HasSubstr("MASTER_PORT")));
}

// Who thinks that all ranks are on one host looks for rank 0 on loopback, the others at the host's address.
TEST(Rendezvous, NamesRanksThatDisagreeAboutTheHosts) {
  std::string address;
  try {
    address = own_address("192.0.2.1", true);  // nobody's (RFC 5737)
  } catch (const ConfigError&) {
    GTEST_SKIP() << "this host has no address but loopback";
  }
  for (const int mistaken : {0, 1}) {
    const int port = free_port();
    std::vector<World> worlds{world_of(0, 2, port), world_of(1, 2, port)};
    for (World& world : worlds) world.address = address;
    worlds[static_cast<std::size_t>(mistaken)].local_size = 1, worlds[static_cast<std::size_t>(mistaken)].local_rank = 0;
    for (const std::string& one : outcomes(worlds))
      EXPECT_THAT(one, AllOf(HasSubstr("config: "), HasSubstr("of the 2 ranks are on its host"), HasSubstr("LOCAL_WORLD_SIZE")))
          << mistaken;
  }
}

TEST(Rendezvous, TakesTheNextPortWhereTheFirstIsHeld) {
  const int port = free_port();
  const Socket agent = listen_at(tcp_address("127.0.0.1", port));
  std::vector<World> worlds{world_of(0, 2, port), world_of(1, 2, port)};
  for (World& world : worlds) world.more_ports = 7;
  EXPECT_THAT(outcomes(worlds), testing::Each(""));
}

TEST(Rendezvous, RefusesLoopbackAmongSeveralHosts) {
  std::vector<World> worlds{world_of(0, 2, free_port()), world_of(1, 2, 1)};
  for (World& world : worlds) world.local_size = 1, world.local_rank = 0;
  for (const std::string& one : outcomes(worlds)) EXPECT_THAT(one, AllOf(HasSubstr("config: MASTER_ADDR=127.0.0.1"), HasSubstr("alone")));
  worlds[0].address = "no-such-host.invalid";
  EXPECT_THAT(outcomes({worlds[0]})[0], HasSubstr("config: cannot find the address of 'no-such-host.invalid'"));
  worlds[0].address = "192.0.2.77";  // nobody's (RFC 5737)
  EXPECT_THAT(outcomes({worlds[0]})[0], AllOf(HasSubstr("config: "), HasSubstr("not an address of rank 0's host")));
  worlds[0].address.clear();
  EXPECT_THAT(outcomes({worlds[0]})[0], HasSubstr("set MASTER_ADDR"));
}

TEST(Rendezvous, RefusesAnotherHostAtALocalAddress) {
  const SocketAddress endpoint = abstract_address(fresh_job());
  StoreJob here{{0, 2, 10, 1, "host-a", "a"}, "job", {endpoint}}, there{{1, 2, 20, 2, "host-b", "b"}, "job", {endpoint}};
  on_threads(2, [&](int rank) {
    try {
      rank == 0 ? serve_store(here, kLong) : reach_store(there, kLong);
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("rank 0 (pid 10 on host a)"), HasSubstr("rank 1 (pid 20 on host b)"), HasSubstr("different hosts")));
    }
  });
}

TEST(Rendezvous, SendsAwayAnotherJob) {
  const int port = free_port();
  on_threads(2, [&](int rank) {
    const auto store = connect_store(world_of(rank, 2, port, "mine"), kLong);
    if (rank == 1) {
      EXPECT_THAT(outcomes({world_of(1, 2, port, "yours")})[0],
                  AllOf(HasSubstr("config: "), HasSubstr("another job"), HasSubstr("MASTER_PORT")));
      EXPECT_THAT(outcomes({world_of(1, 2, port, "mine")})[0], HasSubstr("are both rank 1"));
      store->set("still", "here");
    }
    EXPECT_EQ(store->wait("still", kLong), "here");
  });
}

/// A hostile peer: the job does not notice.
TEST(Rendezvous, OutlivesStrangers) {
  const int port = free_port();
  const SocketAddress endpoint = tcp_address("127.0.0.1", port);
  const Deadline deadline(kLong);
  on_threads(2, [&](int rank) {
    const auto store = connect_store(world_of(rank, 2, port), kLong);
    if (rank == 1) {
      std::vector<Socket> silent;
      for (int i = 0; i < 100; ++i) silent.push_back(dial(endpoint, deadline));  // more than it keeps
      const auto dropped = [&](const std::string& bytes) {
        const Socket socket = dial(endpoint, deadline);
        receive_exactly(socket, wire::kGreetingBytes, deadline);
        send_all(socket, bytes, deadline);
        char byte;
        for (;;) {
          const ssize_t got = ::recv(socket.get(), &byte, 1, 0);
          if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
          if (deadline.passed()) return false;
          std::this_thread::sleep_for(1ms);
        }
      };
      EXPECT_TRUE(dropped("GET / HTTP/1.1\r\n\r\n"));
      EXPECT_TRUE(dropped(std::string(8, '\xff')));              // a length of 4 GiB
      EXPECT_TRUE(dropped(wire::frame(std::string(100, 'x'))));  // no hello
      const wire::Hello hello{1, 2, 1, 1, "h", "h"};
      EXPECT_TRUE(dropped(wire::frame(wire::encode(hello, "job", std::string(16, 'n')))));  // a hello for another nonce
      EXPECT_TRUE(dropped(std::string(1, '\1')));                                           // and then silence
      store->set("still", "here");
    }
    EXPECT_EQ(store->wait("still", kLong), "here");
  });
}

TEST(Wire, HashesAsPublished) {
  std::string data;
  for (char i = 0; i < 15; ++i) data += i;
  EXPECT_EQ(wire::siphash({0x0706050403020100, 0x0f0e0d0c0b0a0908}, data), 0xa129ca6149be45e5);
}

TEST(Wire, ReadsWhatItWroteAndNothingElse) {
  const std::string nonce(16, 'n');
  const std::string hello = wire::encode(wire::Hello{1, 2, 3, 4, "id", "name"}, "job", nonce);
  ASSERT_TRUE(wire::decode_hello(hello, "job", nonce));
  EXPECT_EQ(wire::decode_hello(hello, "job", nonce)->who(), "rank 1 (pid 3 on host name)");
  EXPECT_FALSE(wire::decode_hello(hello, "other", nonce));
  EXPECT_FALSE(wire::decode_hello(hello, "job", std::string(16, 'm')));
  const std::string request = wire::encode(wire::Request{wire::Op::set, "key", "value", 7});
  for (std::size_t cut = 0; cut < request.size(); ++cut) EXPECT_FALSE(wire::decode_request(request.substr(0, cut))) << cut;
  EXPECT_FALSE(wire::decode_request(request + "x"));
  EXPECT_EQ(wire::decode_request(request)->value, "value");
}

}  // namespace
}  // namespace paceline::comm
