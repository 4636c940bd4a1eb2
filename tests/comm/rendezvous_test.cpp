// How ranks meet in the store of processes: those that do not fit together, strangers and the dead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/comm/handshake.h"
#include "paceline/comm/store.h"
#include "paceline/comm/tcp_store_wire.h"
#include "store_jobs.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

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
  for (const std::string& one : outcomes(worlds))
    EXPECT_THAT(one, AllOf(HasSubstr("config: MASTER_ADDR=127.0.0.1"), HasSubstr("1 of the 2 ranks")));
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

}  // namespace
}  // namespace paceline::comm
