// The stores: what every one of them does.
#include "paceline/comm/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "paceline/comm/tcp_store_wire.h"
#include "store_jobs.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

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
