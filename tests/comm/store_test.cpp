// The stores: what every one of them does, and how the one of processes meets ranks that do not fit together, strangers and the dead.
#include "paceline/comm/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/engines/address.h"
#include "paceline/comm/handshake.h"
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

/// One rank's way to a store over TCP on loopback, as between hosts.
StoreJob tcp_job(int rank, int size, int port, const std::string& key = "job", int more_ports = 0) {
  static std::atomic<std::uint64_t> instances{1};
  StoreJob job{{rank, size, ::getpid(), instances++, host_id(), "host", size}, key, {}};
  for (int i = 0; i <= more_ports; ++i) job.candidates.push_back(tcp_address("127.0.0.1", port + i));
  return job;
}

std::shared_ptr<Store> open_store(const World& world, Nanoseconds deadline) { return connect_store(world, deadline); }
std::shared_ptr<Store> open_store(const StoreJob& job, Nanoseconds deadline) {
  return job.hello.rank == 0 ? serve_store(job, deadline) : reach_store(job, deadline);
}

void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

/// What each of these says, started together; empty where all is well. "config: " or "peer N: " in front.
template <class Way>
std::vector<std::string> outcomes_of(const std::vector<Way>& ways, Nanoseconds deadline) {
  std::vector<std::string> said(ways.size());
  on_threads(static_cast<int>(ways.size()), [&](int i) {
    const auto index = static_cast<std::size_t>(i);
    try {
      open_store(ways[index], deadline);
    } catch (const ConfigError& error) {
      said[index] = std::string("config: ") + error.what();
    } catch (const PeerError& error) {
      said[index] = "peer " + std::to_string(error.rank()) + ": " + error.what();
    }
  });
  return said;
}
std::vector<std::string> outcomes(const std::vector<World>& worlds, Nanoseconds deadline = kLong) { return outcomes_of(worlds, deadline); }
std::vector<std::string> tcp_outcomes(const std::vector<StoreJob>& jobs, Nanoseconds deadline = kLong) {
  return outcomes_of(jobs, deadline);
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
      const auto store = GetParam() == Kind::memory ? shared
                         : GetParam() == Kind::tcp  ? open_store(tcp_job(rank, kRanks, port, job), kLong)
                                                    : connect_store(world_of(rank, kRanks, 0, job), kLong);
      body(rank, *store);
    });
  }
};

TEST_P(AnyStore, RefusesACounterThatWouldOverflow) {
  with_ranks([](int rank, Store& store) {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    const std::string key = "counter/" + std::to_string(rank);
    EXPECT_EQ(store.add(key, kMost), kMost);
    EXPECT_THROW(store.add(key, 1), ConfigError);
    EXPECT_EQ(store.add(key, -1), kMost - 1);
  });
}

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

// All give up together; rank 3, which accuses nobody, is the one.
TEST_P(AnyStore, FindsWhomAChainOfAccusationsLeadsTo) {
  with_ranks([](int rank, Store& store) {
    if (rank < 3) {
      EXPECT_EQ(store.culprit(rank, rank + 1, false), 3) << rank;
    }
    if (store.add("done", 1) == kRanks) store.set("over", "yes");
    EXPECT_EQ(store.wait("over", kLong), "yes");
    EXPECT_EQ(store.loss(), std::nullopt);
  });
}

TEST_P(AnyStore, ACircleOfAccusationsEndsAtOnce) {
  with_ranks([](int rank, Store& store) {
    EXPECT_EQ(store.culprit(rank, (rank + 1) % kRanks, false), (rank + 1) % kRanks) << rank;
    if (store.add("done", 1) == kRanks) store.set("over", "yes");
    EXPECT_EQ(store.wait("over", kLong), "yes");
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

TEST(Rendezvous, SaysHowManyHaveComeWhileItWaits) {
  testing::internal::CaptureStderr();
  const auto said = outcomes({world_of(0, 3, 0, fresh_job())}, 2500ms);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 of 3 ranks"));
  EXPECT_THAT(said.front(), HasSubstr("missing: 1, 2"));
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
  const auto said = tcp_outcomes({tcp_job(1, 2, free_port())}, 200ms);
  EXPECT_THAT(said[0], AllOf(HasSubstr("peer 0: "), HasSubstr("127.0.0.1:"), HasSubstr("refused")));
}

TEST(Rendezvous, NamesAPortInUse) {
  const int port = free_port();
  const Socket stranger = listen_at(tcp_address("127.0.0.1", port));
  const auto said = tcp_outcomes({tcp_job(0, 2, port)});
  EXPECT_THAT(said[0], AllOf(HasSubstr("config: 127.0.0.1:" + std::to_string(port)), HasSubstr("in use"), HasSubstr("MASTER_PORT")));
}

TEST(Rendezvous, NamesAPortThatIsHeldWithoutAListener) {
  const Socket stranger(::socket(AF_INET, SOCK_STREAM, 0));
  SocketAddress address = tcp_address("127.0.0.1", 0);
  auto* raw = reinterpret_cast<sockaddr*>(&address.address);
  ASSERT_EQ(::bind(stranger.get(), raw, address.length), 0);
  ASSERT_EQ(::getsockname(stranger.get(), raw, &address.length), 0);
  const int port = ntohs(reinterpret_cast<sockaddr_in&>(address.address).sin_port);
  for (const std::string& one : tcp_outcomes({tcp_job(0, 2, port), tcp_job(1, 2, port)}))
    EXPECT_THAT(one, AllOf(HasSubstr("config: 127.0.0.1:" + std::to_string(port)), HasSubstr("in use"), HasSubstr("MASTER_PORT")));
}

TEST(Rendezvous, NeedsNoPortOnOneHost) {
  const int port = free_port();
  const Socket stranger = listen_at(tcp_address("127.0.0.1", port));
  EXPECT_THAT(outcomes({world_of(0, 2, port), world_of(1, 2, port)}), testing::Each(""));
}

TEST(Rendezvous, WantsASecretAmongSeveralHosts) {
  World world = world_of(0, 2, free_port(), "a name that anybody can guess");
  world.local_size = 1, world.local_rank = 0;
  EXPECT_THAT(outcomes({world})[0], AllOf(HasSubstr("config: "), HasSubstr("PACELINE_JOB"), HasSubstr("openssl rand")));
  world.secret = true, world.job = "short";
  EXPECT_THAT(outcomes({world})[0], AllOf(HasSubstr("config: "), HasSubstr("PACELINE_JOB"), HasSubstr("16")));
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
    for (World& world : worlds) world.address = address, world.secret = true, world.job = std::string(32, 'k');
    worlds[static_cast<std::size_t>(mistaken)].local_size = 1, worlds[static_cast<std::size_t>(mistaken)].local_rank = 0;
    for (const std::string& one : outcomes(worlds))
      EXPECT_THAT(one, AllOf(HasSubstr("config: "), HasSubstr("of the 2 ranks are on its host"), HasSubstr("LOCAL_WORLD_SIZE")))
          << mistaken;
  }
}

TEST(Rendezvous, TakesTheNextPortWhereTheFirstIsHeld) {
  const int port = free_port();
  const Socket agent = listen_at(tcp_address("127.0.0.1", port));
  EXPECT_THAT(tcp_outcomes({tcp_job(0, 2, port, "job", 7), tcp_job(1, 2, port, "job", 7)}), testing::Each(""));
}

TEST(Rendezvous, RefusesLoopbackAmongSeveralHosts) {
  std::vector<World> worlds{world_of(0, 2, free_port()), world_of(1, 2, 1)};
  for (World& world : worlds) world.local_size = 1, world.local_rank = 0, world.secret = true, world.job = std::string(32, 'k');
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
    const auto store = open_store(tcp_job(rank, 2, port, "mine"), kLong);
    if (rank == 1) {
      EXPECT_THAT(tcp_outcomes({tcp_job(1, 2, port, "yours")})[0],
                  AllOf(HasSubstr("config: "), HasSubstr("another job"), HasSubstr("MASTER_PORT")));
      EXPECT_THAT(tcp_outcomes({tcp_job(1, 2, port, "mine")})[0], HasSubstr("are both rank 1"));
      store->set("still", "here");
    }
    EXPECT_EQ(store->wait("still", kLong), "here");
  });
}

/// A peer that knows the key and does not speak as a rank does: the job does not notice.
TEST(Rendezvous, OutlivesNonsense) {
  const int port = free_port();
  const SocketAddress endpoint = tcp_address("127.0.0.1", port);
  const Deadline deadline(kLong);
  on_threads(2, [&](int rank) {
    const auto store = open_store(tcp_job(rank, 2, port), kLong);
    if (rank == 1) {
      const auto dropped = [&](const std::string& bytes) {
        const Socket socket = dial(endpoint, deadline);
        authenticate(socket, "job", kForStore, deadline);
        send_all(socket, bytes, deadline);
        try {
          receive_exactly(socket, 1, deadline);
        } catch (const std::system_error& error) {
          return error.code() == std::errc::connection_reset;
        }
        return false;
      };
      EXPECT_TRUE(dropped("GET / HTTP/1.1\r\n\r\n"));
      EXPECT_TRUE(dropped(std::string(8, '\xff')));              // a length of 4 GiB
      EXPECT_TRUE(dropped(wire::frame(std::string(100, 'x'))));  // no hello
      EXPECT_TRUE(dropped(std::string(1, '\1')));                // and then silence
      store->set("still", "here");
    }
    EXPECT_EQ(store->wait("still", kLong), "here");
  });
}

TEST(Wire, ReadsWhatItWroteAndNothingElse) {
  const std::string hello = wire::encode(wire::Hello{1, 2, 3, 4, "id", "name"});
  ASSERT_TRUE(wire::decode_hello(hello));
  EXPECT_EQ(wire::decode_hello(hello)->who(), "rank 1 (pid 3 on host name)");
  for (std::size_t cut = 0; cut < hello.size(); ++cut) EXPECT_FALSE(wire::decode_hello(hello.substr(0, cut))) << cut;
  const std::string request = wire::encode(wire::Request{wire::Op::set, "key", "value", 7});
  for (std::size_t cut = 0; cut < request.size(); ++cut) EXPECT_FALSE(wire::decode_request(request.substr(0, cut))) << cut;
  EXPECT_FALSE(wire::decode_request(request + "x"));
  EXPECT_EQ(wire::decode_request(request)->value, "value");
}

}  // namespace
}  // namespace paceline::comm
